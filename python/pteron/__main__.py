"""`python -m pteron`: the command line."""

from pteron.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
