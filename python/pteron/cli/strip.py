"""Write a program without debug information: smaller; errors then name instructions, not source lines."""

from __future__ import annotations

import argparse
from pathlib import Path

import pteron
from pteron.cli.arguments import add_json, print_json, write_file
from pteron.cli.failure import about
from pteron.devtools.text_table import size_text

EXAMPLE = "pteron strip model.pte -o small.pte"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("program", type=Path, help="a .pte file")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the file to write")
    add_json(parser)


def execute(options: argparse.Namespace) -> int:
    """Writes the smaller file."""
    content = options.program.read_bytes()
    with about(options.program):
        stripped = pteron.strip(content)
    write_file(options.output, stripped)
    if options.json:
        print_json({"old_bytes": len(content), "new_bytes": len(stripped)})
    else:
        print(f"{size_text(len(content))} -> {size_text(len(stripped))}")
    return 0
