"""Compare two programs, or one under two settings, value by value.

Without a second program the first is compared with itself under the --against settings: another instruction
set, other threads, rewrites switched off (`rules=all` runs the program as the file has it). Values in between
are compared where both programs have the same instructions, outputs always. An error counts as a difference
above --rtol of the largest element.

--save-values writes what a run gives, and --reference compares with it, on another machine for example, or
with what `pteron run --save` wrote. Values are on disk, never all in memory.
"""

from __future__ import annotations

import argparse
import zipfile
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pteron
from pteron.cli.arguments import (
    add_json,
    add_method,
    add_program,
    add_runtime,
    check_writable,
    inputs_beside,
    load,
    method_of,
    new_file,
    print_json,
    runtime,
    write_files,
)
from pteron.cli.failure import UsageError
from pteron.cli.inputs import add_inputs, npz, read_inputs
from pteron.cli.numbers import count, count_or_zero, tolerance
from pteron.cli.progress import progress
from pteron.cli.tables import table
from pteron.devtools.compare import Comparison, Errors, compare, compare_saved, save_values
from pteron.devtools.description import describe_plan
from pteron.devtools.sub_program import SubPrograms

EXAMPLE = "pteron compare model.pte --against rules=all --first-divergence"
SETTINGS = ("isa", "rules", "threads")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_program(parser)
    parser.add_argument("other", type=Path, nargs="?", help="another .pte file")
    parser.add_argument(
        "--against",
        action="append",
        default=[],
        metavar="SETTING=VALUE",
        help="isa=avx2, rules=all or rules=RULE,RULE, threads=N for the other side; may be repeated",
    )
    add_method(parser)
    add_inputs(parser)
    add_runtime(parser)
    parser.add_argument("--threads", type=count, help="threads of our side")
    parser.add_argument("--rtol", type=tolerance, default=1e-5, help="largest error, of the largest element")
    parser.add_argument("--most", type=count_or_zero, default=10, help="print so many values, the worst")
    parser.add_argument(
        "--reference",
        type=Path,
        metavar="FILE.npz",
        help="compare with saved outputs, or with --save-values'",
    )
    parser.add_argument(
        "--save-values",
        type=Path,
        metavar="FILE.npz",
        help="write outputs and values of our run for --reference",
    )
    parser.add_argument(
        "--save-failing",
        type=Path,
        metavar="FILE.pte",
        help="write the step of the first value above --rtol as a program, and its inputs beside it",
    )
    parser.add_argument(
        "--first-divergence", action="store_true", help="print the first value above --rtol alone"
    )
    add_json(parser)


def execute(options: argparse.Namespace) -> int:
    """1 where an output, or with --first-divergence a value, differs by more than the tolerance."""
    has_other = options.other is not None or bool(options.against)
    if not (has_other or options.reference or options.save_values):
        raise UsageError("name a second program, a setting (--against rules=all), or --reference FILE.npz")
    if has_other and options.reference is not None:
        raise UsageError("--reference compares with saved values: name no second program or setting")
    for path in (options.save_values, options.save_failing):
        if path is not None:
            check_writable(path)
    if options.save_failing is not None:
        inputs_beside(options.save_failing)
    settings = _settings(options.against)
    ours = load(options)
    method = method_of(ours, options.method)
    values = read_inputs(options.input, ours.inputs(method), options.seed)
    if options.save_values is not None:
        with progress("compare") as shown, new_file(options.save_values) as file:
            done = partial(shown.show, "saving values")
            save_values(file, ours, values, method, num_threads=options.threads, done=done)
        if not has_other and options.reference is None:
            if options.json:
                print_json({"written": str(options.save_values)})
            else:
                print(f"written: {options.save_values}")
            return 0
    with progress("compare") as shown:
        done = partial(shown.show, "running and comparing")
        done()
        found = _compare(options, settings, ours, method, values, done)
    differs = any(not errors.relative <= options.rtol for errors in found.outputs.values())
    if options.save_failing is not None:
        _save_failing(options, ours, method, values, found)
    if options.first_divergence:
        return _first(found, options, differs)
    if options.json:
        print_json(
            {
                "are_aligned": found.are_aligned,
                "outputs": {name: asdict(errors) for name, errors in found.outputs.items()},
                "values": [asdict(value) for value in found.values],
            }
        )
    else:
        print(_text(found, options.most), end="")
    return 1 if differs else 0


def _compare(
    options: argparse.Namespace,
    settings: dict[str, Any],
    ours: pteron.Program,
    method: str,
    values: list[Any],
    done: Callable[[float], None],
) -> Comparison:
    try:
        if options.reference is not None:
            with open(options.reference, "rb") as file:
                return compare_saved(ours, file, values, method, num_threads=options.threads, done=done)
        theirs = _other(options, settings)
        if method not in theirs.methods:
            raise UsageError(f"the other program has no method {method!r}")
        threads = (options.threads, settings.get("threads"))
        return compare(ours, theirs, values, method, num_threads=threads, done=done)
    except zipfile.BadZipFile as e:
        raise UsageError(f"{options.reference}: not an .npz file, or a damaged one ({e})") from None
    except ValueError as e:
        raise UsageError(str(e)) from None


def _save_failing(
    options: argparse.Namespace, ours: pteron.Program, method: str, values: list[Any], found: Comparison
) -> None:
    """Writes the instructions of the first value that differs as a program, with their inputs."""
    value = found.first_divergence(options.rtol)
    if value is None:
        return
    plain = runtime(argparse.Namespace(**{**vars(options), "disable_rule": ["all"]}))
    try:
        parts = SubPrograms(options.program.read_bytes(), ours, method, values, plain)
    except ValueError as e:
        raise UsageError(f"{options.program}: {e}") from None
    instructions = describe_plan(ours, method).steps[value.step].instructions
    part = parts.cut(parts.units_of(instructions))
    if part is None:
        raise UsageError(
            f"step {value.step} cannot be a program of its own; pteron reduce finds one that can"
        )
    inputs = inputs_beside(options.save_failing)
    write_files({options.save_failing: part.content, inputs: npz(part.inputs)})


def _first(found: Comparison, options: argparse.Namespace, differs: bool) -> int:
    if not found.are_aligned:
        raise UsageError("the programs have other instructions: only their outputs can be compared")
    value = found.first_divergence(options.rtol)
    if options.json:
        print_json(None if value is None else asdict(value))
    elif value is None:
        print(f"no value differs by more than {options.rtol:g}")
    else:
        where = (
            ", ".join(text for text in (value.source.module, value.source.line) if text)
            or "unknown source line"
        )
        print(
            f"step {value.step}: value {value.value}, {value.dtype}{list(value.shape)}, {value.operator}"
            f" ({value.kernel}), {where}: {_errors(value.errors)}"
        )
    return 1 if value is not None or differs else 0


def _settings(texts: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if name not in SETTINGS or not equals:
            raise UsageError(f"{text!r} is no setting: isa=NAME, rules=all, rules=RULE,RULE or threads=N")
        if name == "threads":
            if not value.isdecimal() or int(value) < 1:
                raise UsageError(f"{text!r}: not a number of threads")
            found[name] = int(value)
        else:
            found[name] = value.split(",") if name == "rules" else value
    return found


def _other(options: argparse.Namespace, settings: dict[str, Any]) -> pteron.Program:
    changed = argparse.Namespace(**vars(options))
    changed.isa = settings.get("isa", options.isa)
    changed.disable_rule = settings.get("rules", options.disable_rule)
    changed.data = options.data if options.other is None else []
    return load(changed, options.other)


def _text(found: Comparison, most: int) -> str:
    heads = ("max abs", "relative", "cosine", "SNR dB", "ulp")
    rows = [(name, *_cells(errors)) for name, errors in found.outputs.items()]
    out = table(("output", *heads), rows)
    if not found.are_aligned:
        return out + "other instructions, or no saved values: only outputs were compared\n"
    worst = [value for value in found.worst(most) if value.errors.relative > 0]
    out += f"{len(found.values)} values compared\n"
    if worst:
        rows = [
            (f"{value.step} {value.operator} ({value.source.module or 'not known'})", *_cells(value.errors))
            for value in worst
        ]
        out += "\n" + table(("step", *heads), rows)
    return out


def _cells(errors: Errors) -> tuple[str, ...]:
    return (
        f"{errors.max_abs:.2e}",
        f"{errors.relative:.2e}",
        f"{errors.cosine:.6f}",
        f"{errors.snr:.1f}",
        f"{errors.ulp:.3g}",
    )


def _errors(errors: Errors) -> str:
    return f"differs by {errors.max_abs:.3g} ({errors.relative:.3g} of the largest), {errors.ulp:.3g} ulp"
