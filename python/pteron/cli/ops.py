"""List the operators of a program with the number of their calls, or --all that have a kernel here."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from pteron import _native
from pteron.cli.arguments import load, print_json
from pteron.cli.failure import UsageError
from pteron.cli.tables import table
from pteron.devtools.description import describe

EXAMPLE = "pteron ops model.pte"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("program", type=Path, nargs="?", help="a .pte file")
    parser.add_argument("--data", type=Path, action="append", default=[], help="a data file (.ptd)")
    parser.add_argument("--all", action="store_true", help="every operator with a kernel here")
    parser.add_argument("--json", action="store_true", help="print JSON")


def execute(options: argparse.Namespace) -> int:
    """Prints the list."""
    known = _native.operator_names()
    if options.all:
        if options.json:
            print_json(known)
        else:
            print("\n".join(known))
        return 0
    if options.program is None:
        raise UsageError("name a program, or give --all")
    file = describe(load(options))
    calls = Counter(
        call.operator
        for method in file.methods.values()
        for call in method.calls
        if call.operator is not None
    )
    rows = [(name, count, name in set(known)) for name, count in calls.most_common()]
    if options.json:
        print_json([{"operator": name, "calls": count, "kernel": has} for name, count, has in rows])
    else:
        cells = [(name, str(count), "yes" if has else "no") for name, count, has in rows]
        print(table(("operator", "calls", "kernel here"), cells), end="")
    return 0
