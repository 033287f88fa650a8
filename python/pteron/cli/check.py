"""Check a program: every fault, missing kernel and missing backend at once."""

from __future__ import annotations

import argparse

import pteron
from pteron.cli.arguments import add_json, add_program, add_runtime, load, print_json, runtime
from pteron.cli.failure import one_line
from pteron.cli.missing import missing_backends, missing_operators

EXAMPLE = "pteron check model.pte"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_program(parser)
    add_runtime(parser)
    add_json(parser)


def execute(options: argparse.Namespace) -> int:
    """1 where anything is wrong."""
    found = faults(options)
    if options.json:
        print_json({"faults": found})
    for fault in [] if options.json else found:
        print(fault)
    if not found and not options.json:
        print("no fault found")
    return 1 if found else 0


def faults(options: argparse.Namespace) -> list[str]:
    """What is wrong, a line each."""
    try:
        program = load(options)
    except pteron.PteronError as e:
        return [one_line(e)]
    where = runtime(options)
    found = [f"no kernel for {operator}" for operator in missing_operators(program, where)]
    found += [f"backend {name}: {why}" for name, why in missing_backends(program, where).items()]
    expected = (pteron.MissingOperatorError, pteron.MissingBackendError) if found else ()
    for method in program.methods:
        try:
            program.load_method(method)
        except expected:
            pass
        except pteron.PteronError as e:
            found.append(one_line(e))
    return found
