"""Write a report on a program as one HTML file that opens in any browser, without a network.

It shows modules, the graph of the file and of the plan, memory and weights. With --runs the program is run
and measured; --profile takes what `pteron profile --json` has saved, and may be repeated to compare runs.
Further programs are compared with the first. Without --runs the same input makes the same bytes.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pteron
from pteron.cli.arguments import (
    add_json,
    add_method,
    add_program,
    add_runtime,
    load,
    method_of,
    print_json,
    write_file,
)
from pteron.cli.ceiling import MEASURE, OFF, add_ceiling, ceiling_of, given_ceiling
from pteron.cli.failure import UsageError
from pteron.cli.inputs import add_inputs, read_inputs
from pteron.cli.numbers import count, count_or_zero
from pteron.devtools.ceiling import Ceiling
from pteron.devtools.profile import profile
from pteron.devtools.report import MeasurementError, Report, Subject, report
from pteron.devtools.text_table import size_text

EXAMPLE = "pteron report model.pte --runs 20 -o report.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_program(parser)
    parser.add_argument("others", type=Path, nargs="*", help="other .pte files, compared with the first")
    add_method(parser)
    add_inputs(parser)
    add_runtime(parser)
    parser.add_argument("--runs", type=count_or_zero, default=0, help="measured calls of each program")
    parser.add_argument("--threads", type=count, default=1, help="threads of a call (default 1)")
    parser.add_argument(
        "--profile",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="saved by pteron profile --json: of the one program, any number; of several, one for each",
    )
    parser.add_argument(
        "--errors",
        type=Path,
        metavar="FILE",
        help="saved by pteron compare --json: errors of the first program",
    )
    add_ceiling(parser)
    parser.add_argument("-o", "--output", type=Path, required=True, help="write to this file")
    add_json(parser)


def execute(options: argparse.Namespace) -> int:
    """Writes the report."""
    files = [options.program, *options.others]
    if options.profile and options.runs:
        raise UsageError("--profile has saved measurements, --runs takes new ones: give one of them")
    if len(files) > 1 and options.profile and len(options.profile) != len(files):
        raise UsageError(f"{len(options.profile)} profiles for {len(files)} programs: give one for each")
    if options.ceiling == MEASURE and not options.runs:
        raise UsageError("--ceiling measure is for --runs: saved profiles have the ceiling of their machine")
    ceiling = given_ceiling(options)
    subjects = [_subject(options, at, file, len(files)) for at, file in enumerate(files)]
    done = built(subjects, ceiling)
    write_file(options.output, done.html)
    if options.json:
        print_json({"file": str(options.output), "bytes": len(done.html.encode())})
    else:
        print(f"{options.output}: {size_text(len(done.html))}")
    return 0


def built(subjects: list[Subject], ceiling: Ceiling | None = None) -> Report:
    """The report.

    Raises:
        UsageError: saved measurements are not of these programs.
    """
    try:
        return report(subjects, ceiling)
    except MeasurementError as e:
        raise UsageError(str(e)) from None


def _subject(options: argparse.Namespace, at: int, file: Path, count: int) -> Subject:
    changed = argparse.Namespace(**vars(options))
    if at:
        changed.data = []
    program = load(changed, file)
    method = method_of(program, options.method)
    profiles: dict[str, Any] = {}
    if options.profile:
        mine = options.profile if count == 1 else [options.profile[at]]
        for path in mine:
            label, number = path.stem, 2
            while label in profiles:
                label, number = f"{path.stem} {number}", number + 1
            profiles[label] = _without_ceiling(_json(path)) if options.ceiling == OFF else _json(path)
    elif options.runs:
        profiles[""] = _measured(options, program, method)
    errors = _json(options.errors) if options.errors is not None and at == 0 else None
    return Subject(file.name, program, file.read_bytes(), method, profiles, errors)


def _measured(options: argparse.Namespace, program: pteron.Program, method: str) -> Any:
    inputs = read_inputs(options.input, program.inputs(method), options.seed)
    ceiling = ceiling_of(options, options.threads)
    return profile(program, inputs, method, runs=options.runs, num_threads=options.threads, ceiling=ceiling)


def _without_ceiling(saved: Any) -> Any:
    return {**saved, "ceiling": None} if isinstance(saved, dict) else saved


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as e:
        raise UsageError(f"{path}: not JSON ({e})") from None
