"""The `pteron` command: what is in a program, whether it runs here, how fast, and why.

Exit codes: 0 all is well, 1 something was found (a fault, a difference, a program that does not run), 2 the
command was used wrongly or a file cannot be read or written.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import pteron
from pteron.cli import (
    bench,
    bisect_rewrites,
    build_profile,
    chat,
    check,
    compare,
    completion,
    convert,
    diff,
    export_embeddings,
    generate,
    graph,
    info,
    kernels,
    knobs,
    ops,
    pack,
    plugins,
    profile,
    reduce,
    report,
    run,
    size,
    strip,
    transcribe,
)
from pteron.cli.failure import UsageError, one_line

__all__ = ["main"]

#: In the order of the help.
COMMANDS = (
    info,
    check,
    ops,
    kernels,
    run,
    bench,
    profile,
    report,
    compare,
    reduce,
    bisect_rewrites,
    size,
    diff,
    graph,
    strip,
    pack,
    convert,
    build_profile,
    generate,
    chat,
    transcribe,
    export_embeddings,
    plugins,
    knobs,
    completion,
)


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong; argparse itself prints the whole usage before."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"pteron: {message} (`{self.prog} --help` shows what it takes)\n")


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    whole = _Parser(prog="pteron", description="Look into, run and measure .pte programs.")
    whole.add_argument("--version", action="version", version=f"pteron {pteron.__version__}")
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in COMMANDS:
        name = module.__name__.rpartition(".")[2].replace("_", "-")
        text = (module.__doc__ or "").strip()
        one = commands.add_parser(
            name,
            help=text.splitlines()[0].rstrip("."),
            description=text,
            epilog=f"example: {module.EXAMPLE}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(one)
        one.set_defaults(execute=module.execute, refuse=one.error)
    return whole


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; the exit code."""
    options, unknown = parser().parse_known_args(arguments)
    if unknown:
        # By the command's own parser, whose help says what it takes.
        options.refuse(f"unrecognized arguments: {' '.join(unknown)}")
    try:
        code: int = options.execute(options)
        sys.stdout.flush()
    except UsageError as e:
        return _fail(e, 2)
    except BrokenPipeError:
        # The reader has gone, `pteron ... | head`: nothing is wrong.
        _drop_output()
        return 0
    except (OSError, MemoryError) as e:
        return _fail(e, 2)
    except pteron.PteronError as e:
        return _fail(e, 1)
    except KeyboardInterrupt:
        return 130
    return code


def _fail(error: Exception, code: int) -> int:
    print(f"pteron: {one_line(error)}", file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:
        _drop_output()
    return code


def _drop_output() -> None:
    """What standard output has not taken goes nowhere: the interpreter would try again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
