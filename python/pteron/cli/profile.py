"""Show where the time of a call goes: by step, operator, module, source line, kernel or backend.

The times are those of steps; what a call takes outside of them and what tracing adds to it are printed. A
trace opens in Perfetto (https://ui.perfetto.dev), a speedscope file at https://www.speedscope.app. json is
one document with every step and call, jsonl has an object for each line of the table.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from pteron.cli.arguments import (
    add_method,
    add_program,
    add_runtime,
    load,
    method_of,
    write_file,
)
from pteron.cli.ceiling import add_ceiling, ceiling_of
from pteron.cli.inputs import add_inputs, read_inputs
from pteron.cli.numbers import count, count_or_zero
from pteron.cli.report import built
from pteron.devtools.graph.model_explorer import node_data
from pteron.devtools.profile import GROUPS, Profile, profile
from pteron.devtools.report import Subject

EXAMPLE = "pteron profile model.pte --by module"
FORMATS = ("table", "json", "jsonl", "csv", "chrome", "speedscope", "html")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_program(parser)
    add_method(parser)
    add_inputs(parser)
    add_runtime(parser)
    parser.add_argument("--by", choices=GROUPS, default="step", help="what a line stands for")
    parser.add_argument("--most", type=count_or_zero, help="print so many lines at most")
    parser.add_argument("--runs", type=count, default=20, help="measured calls")
    parser.add_argument("--threads", type=count, default=1, help="threads of a call (default 1)")
    parser.add_argument("--format", choices=FORMATS, default="table", help="what is written")
    add_ceiling(parser)
    parser.add_argument(
        "--node-data",
        type=Path,
        metavar="FILE.json",
        help="write the times of steps as an overlay of `pteron graph --plan --format model-explorer`",
    )
    parser.add_argument("-o", "--output", type=Path, help="write to this file")
    parser.add_argument(
        "--json", action="store_const", const="json", dest="format", help="the same as --format json"
    )


def execute(options: argparse.Namespace) -> int:
    """Prints or writes the profile."""
    program = load(options)
    method = method_of(program, options.method)
    values = read_inputs(options.input, program.inputs(method), options.seed)
    found = profile(
        program,
        values,
        method,
        runs=options.runs,
        num_threads=options.threads,
        ceiling=ceiling_of(options, options.threads),
    )
    if options.node_data is not None:
        write_file(options.node_data, overlay(found))
    if options.format == "html":
        subject = Subject(options.program.name, program, options.program.read_bytes(), method, {"": found})
        text = built([subject]).html
    else:
        text = render(found, options.format, options.by, options.most)
    if options.output is not None:
        write_file(options.output, text)
    else:
        print(text, end="" if text.endswith("\n") else "\n")
    return 0


def overlay(found: Profile) -> str:
    """Microseconds of a call by node of the plan's graph, for Model Explorer."""
    calls = len(found.traced_calls)
    values = {f"s{step.step.index}": sum(step.nanoseconds) / calls / 1e3 for step in found.steps}
    return node_data(found.method, "us", values)


def render(found: Profile, form: str, group: str, most: int | None) -> str:
    """The profile in one of the formats."""
    if form == "json":
        return json.dumps(found.to_dict(), indent=2)
    if form == "jsonl":
        return found.to_json_lines(group)
    if form == "csv":
        return found.to_csv(group)
    if form == "chrome":
        return found.to_chrome_trace()
    if form == "speedscope":
        return found.to_speedscope()
    steps = sum(sum(step.nanoseconds) for step in found.steps) / len(found.traced_calls)
    ceiling = ""
    if found.ceiling is not None and found.least is not None:
        share = found.least / found.nanoseconds
        ceiling = (
            f"{share:.0%} of the ceiling of this machine, {found.ceiling.gflops:.0f} GFLOP/s"
            f" and {found.ceiling.gigabytes:.0f} GB/s\n"
        )
    return (
        found.table(group, most)
        + f"\n{found.method}, {found.num_threads} threads, median of {len(found.calls)} calls:"
        f" {found.nanoseconds / 1e3:.1f} us; steps {steps / 1e3:.1f} us,"
        f" outside of them {found.outside / 1e3:.1f} us; tracing adds {found.overhead:.1%}\n" + ceiling
    )
