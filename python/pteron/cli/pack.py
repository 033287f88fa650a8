"""Store the weights packed, as load would pack them: the file grows, and load packs no more.

The packs are beside the plain weights in the same file; other runtimes skip them. With --remove they go.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pteron.cli.arguments import add_json, load, print_json, write_file
from pteron.cli.failure import UsageError, about
from pteron.cli.progress import progress
from pteron.devtools.program_file import PACKED_KEY, read_program
from pteron.devtools.text_table import size_text

EXAMPLE = "pteron pack model.pte -o packed.pte"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("program", type=Path, help="a .pte file")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the file to write")
    parser.add_argument("--remove", action="store_true", help="take packed weights out")
    parser.set_defaults(data=[])
    add_json(parser)


def execute(options: argparse.Namespace) -> int:
    """Writes the file."""
    content = options.program.read_bytes()
    program = load(options)
    file = read_program(program, content)
    with about(options.program):
        if not options.remove:
            with progress("pack") as shown:
                packs = file.pack(
                    lambda done, total: shown.show(
                        f"{size_text(done)} of {size_text(total)} of weights",
                        done / total if done < total else None,
                    )
                )
        elif file.drop_named(PACKED_KEY):
            packs = 0
        else:
            raise UsageError(f"{options.program}: no weights are packed")
        result = file.to_bytes()
    write_file(options.output, result)
    if options.json:
        print_json({"packs": packs, "old_bytes": len(content), "new_bytes": len(result)})
    else:
        print(f"{packs} packed weights, {size_text(len(content))} -> {size_text(len(result))}")
    return 0
