"""Show what takes the bytes of a program: weights by module and dtype, delegates, what is stored twice."""

from __future__ import annotations

import argparse

from pteron.cli.arguments import add_json, add_program, load, print_json
from pteron.cli.numbers import count
from pteron.devtools.size_report import SizeReport, size_report
from pteron.devtools.text_table import size_text, text_table

EXAMPLE = "pteron size model.pte --depth 2"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_program(parser)
    parser.add_argument("--depth", type=count, default=3, help="module paths are cut to so many parts")
    add_json(parser)


def execute(options: argparse.Namespace) -> int:
    """Prints the sizes."""
    program = load(options)
    report = size_report(program, options.program.read_bytes(), depth=options.depth)
    if options.json:
        print_json(report.to_dict())
    else:
        print(text(report), end="")
    return 0


def text(report: SizeReport) -> str:
    """The sizes as tables."""
    rows = [(name, str(nbytes), f"{nbytes / report.file_bytes:.1%}") for name, nbytes in report.parts.items()]
    out = text_table(("part", "bytes", "share"), [*rows, ("file", str(report.file_bytes), "100.0%")])
    for title, sizes in (
        ("module", report.modules),
        ("dtype", report.dtypes),
        ("delegate", report.delegates),
    ):
        if sizes:
            order = sorted(sizes.items(), key=lambda item: -item[1])
            out += "\n" + text_table((title, "bytes"), [(name, str(nbytes)) for name, nbytes in order])
    for duplicate in report.duplicates:
        names = ", ".join(duplicate.names)
        out += f"\nstored {len(duplicate.names)} times: {names} ({size_text(duplicate.nbytes)})"
    return out + ("\n" if report.duplicates else "")
