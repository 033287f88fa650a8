"""Show which rewrite at load changes the result or the time: each is switched off alone, and all together.

Errors are those of the outputs with the rewrite against those without it, relative to the largest element;
times are medians of calls that alternate with calls of the program as it is.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np

import pteron
from pteron import _native
from pteron.cli.arguments import (
    add_backends,
    add_isa,
    add_json,
    add_method,
    add_program,
    load,
    method_of,
    print_json,
)
from pteron.cli.inputs import add_inputs, read_inputs
from pteron.cli.numbers import count
from pteron.cli.progress import progress
from pteron.cli.tables import table
from pteron.devtools.compare import errors

EXAMPLE = "pteron bisect-rewrites model.pte"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_program(parser)
    add_method(parser)
    add_inputs(parser)
    add_isa(parser)
    add_backends(parser)
    parser.add_argument("--threads", type=count, default=1, help="threads of a call (default 1)")
    parser.add_argument("--runs", type=count, default=10, help="timed calls of each side")
    add_json(parser)


def execute(options: argparse.Namespace) -> int:
    """Prints a row for each rewrite that applies to the program."""
    program = load(options)
    method = method_of(program, options.method)
    values = read_inputs(options.input, program.inputs(method), options.seed)
    plan = program.plan_listing(method)
    base = program.load_method(method, num_threads=options.threads, seed=0)
    rows: list[dict[str, Any]] = []
    rules = [*_native.rule_names(), "all"]
    with progress("bisect-rewrites") as shown:
        for at, rule in enumerate(rules):
            shown.show(rule, at / len(rules))
            rows += _without(rule, options, method, plan, base, values)
    if options.json:
        print_json(rows)
    elif not rows:
        print("no rewrite applies to the method")
    else:
        cells = [
            (
                row["rule"],
                f"{row['relative']:.1e}",
                f"{row['ms']:.3f}",
                f"{row['without_ms']:.3f}",
                f"{row['gain']:.2f}x",
            )
            for row in rows
        ]
        print(table(("rewrite", "error", "with, ms", "without, ms", "gain"), cells), end="")
    return 0


def _without(
    rule: str,
    options: argparse.Namespace,
    method: str,
    plan: str,
    base: pteron.Method,
    values: list[Any],
) -> list[dict[str, Any]]:
    """The row of a rewrite; none where the plan is the same without it."""
    other = load(argparse.Namespace(**{**vars(options), "disable_rule": [rule]}))
    if other.plan_listing(method) == plan:
        return []
    session = other.load_method(method, num_threads=options.threads, seed=0)
    return [{"rule": rule, **_row(base, session, values, options.runs)}]


def _row(base: pteron.Method, other: pteron.Method, values: list[Any], runs: int) -> dict[str, float]:
    base.reset_state()
    pairs = zip(base.execute(values), other.execute(values), strict=True)
    relative = max(
        (errors(np.asarray(a), np.asarray(b)).relative for a, b in pairs if a is not None), default=0.0
    )
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(runs):
        for session, found in ((base, ours), (other, theirs)):
            start = time.perf_counter()
            session.execute(values)
            found.append((time.perf_counter() - start) * 1e3)
    ms, without = statistics.median(ours), statistics.median(theirs)
    return {"relative": relative, "ms": ms, "without_ms": without, "gain": without / ms}
