"""Show the steps that load makes of a method: the kernel of each, what it covers, where it comes from, and
why the kernels that were asked before it declined.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from pteron.cli.arguments import (
    add_json,
    add_method,
    add_program,
    add_runtime,
    load,
    method_of,
    print_json,
)
from pteron.cli.tables import table
from pteron.devtools.description import MethodDescription, Step, describe_plan
from pteron.devtools.sources import Sources

EXAMPLE = "pteron kernels model.pte --isa avx2"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_program(parser)
    add_method(parser)
    add_runtime(parser)
    add_json(parser)


def execute(options: argparse.Namespace) -> int:
    """Prints the steps."""
    program = load(options)
    method = method_of(program, options.method)
    plan = describe_plan(program, method)
    sources = Sources(program, method)
    rows: list[dict[str, Any]] = [
        {
            "step": step.index,
            "kernel": step.name,
            "operators": _operators(plan, step),
            "instructions": list(step.instructions),
            "result": _result(plan, step),
            "modules": [source.module for source in sources.of(step) if source.module],
            "declined": [{"kernel": kernel, "why": why} for kernel, why in step.declined],
        }
        for step in plan.steps
    ]
    if options.json:
        print_json(rows)
        return 0
    cells = [
        (
            str(row["step"]),
            row["kernel"],
            " + ".join(row["operators"]),
            row["result"],
            ", ".join(row["modules"]),
        )
        for row in rows
    ]
    print(table(("step", "kernel", "operators", "result", "module"), cells), end="")
    declined = list(_declined(plan))
    if declined:
        print("\nkernels that were asked before:")
        print(table(("operator", "kernel", "declined since", "steps"), declined), end="")
    return 0


def _declined(plan: MethodDescription) -> Iterator[tuple[str, str, str, str]]:
    """Operator, kernel, reason and steps, each once."""
    found: dict[tuple[str, str, str], list[int]] = {}
    for step in plan.steps:
        for kernel, why in step.declined:
            found.setdefault((step.operator or "", kernel, why or "the call is not its case"), []).append(
                step.index
            )
    for key, steps in found.items():
        yield *key, ", ".join(map(str, steps))


def _operators(plan: MethodDescription, step: Step) -> list[str]:
    return [name for at in step.calls if (name := plan.calls[at].operator) is not None]


def _result(plan: MethodDescription, step: Step) -> str:
    tensors = [next(plan.leaves(arg), None) for arg in step.args]
    last = next((tensor for tensor in reversed(tensors) if tensor is not None), None)
    return last.text if last is not None else ""
