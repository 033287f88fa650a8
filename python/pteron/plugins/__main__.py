"""`python -m pteron.plugins list` and `python -m pteron.plugins new NAME DIRECTORY`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pteron.plugins import details
from pteron.plugins.new_package import LANGUAGES, new_package


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m pteron.plugins", description="Backends from other packages."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="what installed packages offer; nothing is imported or loaded")
    new = commands.add_parser("new", help="write a package with a backend that works")
    new.add_argument("name", help="of the package, for example acme-npu")
    new.add_argument("directory", type=Path, help="where to write it: empty, or not there")
    new.add_argument("--language", choices=list(LANGUAGES), default="c", help="of the run half (default: c)")
    chosen = parser.parse_args(arguments)
    if chosen.command == "list":
        print(_table())
        return 0
    try:
        written = new_package(chosen.name, chosen.directory, chosen.language)
    except (ValueError, FileExistsError) as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(str(file) for file in written))
    print(f'\ncd {chosen.directory} && pip install --no-build-isolation -e ".[test]" && pytest')
    return 0


def _table() -> str:
    """A line for each backend."""
    rows = [("name", "package", "kind", "interface", "compile half", "file")]
    for each in details():
        interface = "-" if each.interface is None else str(each.interface)
        package = f"{each.distribution} {each.version}"
        half = "yes" if each.has_partitioner else "no"
        rows.append((each.name, package, each.kind, interface, half, each.path or "-"))
    if len(rows) == 1:
        return "no installed package offers a backend"
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


if __name__ == "__main__":
    sys.exit(main())
