"""Show what takes the bytes of a program: weights by module and dtype, delegates, what is stored twice."""

from __future__ import annotations

import argparse

from pteron.cli.arguments import add_json, add_program, load, print_json
from pteron.cli.numbers import count
from pteron.devtools.size_report import size_report

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
        print(report, end="")
    return 0
