"""Check a program: every fault, missing kernel and missing backend at once."""

from __future__ import annotations

import argparse

import pteron
from pteron.cli.arguments import add_json, add_program, add_runtime, load, print_json, runtime
from pteron.cli.failure import one_line
from pteron.cli.missing import missing_backends, missing_operators
from pteron.devtools.program_file import PACKED_KEY, is_pack

EXAMPLE = "pteron check model.pte"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_program(parser)
    add_runtime(parser)
    add_json(parser)


def execute(options: argparse.Namespace) -> int:
    """1 where anything is wrong."""
    try:
        program = load(options)
    except pteron.PteronError as e:
        found, packs = [one_line(e)], None
    else:
        found, packs = faults(options, program), packs_of(program)
    if options.json:
        print_json({"faults": found, "packs": packs})
        return 1 if found else 0
    for fault in found or ["no fault found"]:
        print(fault)
    if packs is not None:
        print(
            f"{packs['used']} of {packs['stored']} packed weights of the file are used here,"
            f" {packs['made']} more are packed at load"
        )
    return 1 if found else 0


def packs_of(program: pteron.Program) -> dict[str, int] | None:
    """How many packed weights the file brings along, how many of them loaded methods use, and how many load
    made; None where the file has none.
    """
    stored = sum(is_pack(key) and key != PACKED_KEY for key in program.named_data)
    if not stored:
        return None
    return {"stored": stored, "used": program.stored_pack_stats[0], "made": program.pack_stats[0]}


def faults(options: argparse.Namespace, program: pteron.Program) -> list[str]:
    """What is wrong, a line each. Leaves the packs of every method that loads in the program."""
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
