"""Compare two programs, or one under two settings, value by value.

Without a second program the first is compared with itself under the --against settings: another instruction
set, other threads, rewrites switched off (`rules=all` runs the program as the file has it). Values in between
are compared where both programs have the same instructions, outputs always. An error counts as a difference
above --rtol of the largest element.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pteron
from pteron.cli.arguments import add_json, add_method, add_program, add_runtime, load, method_of, print_json
from pteron.cli.failure import UsageError
from pteron.cli.inputs import add_inputs, read_inputs
from pteron.devtools.compare import Comparison, Errors, compare
from pteron.devtools.text_table import text_table

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
    parser.add_argument("--threads", type=int, help="threads of our side")
    parser.add_argument("--rtol", type=float, default=1e-5, help="largest error, of the largest element")
    parser.add_argument("--most", type=int, default=10, help="print so many values at most, the worst")
    parser.add_argument(
        "--first-divergence", action="store_true", help="print the first value above --rtol alone"
    )
    add_json(parser)


def execute(options: argparse.Namespace) -> int:
    """1 where an output, or with --first-divergence a value, differs by more than the tolerance."""
    if options.other is None and not options.against:
        raise UsageError("name a second program, or a setting: --against rules=all")
    settings = _settings(options.against)
    ours = load(options)
    theirs = _other(options, settings)
    method = method_of(ours, options.method)
    if method not in theirs.methods:
        raise UsageError(f"the other program has no method {method!r}")
    values = read_inputs(options.input, ours.inputs(method), options.seed)
    threads = (options.threads, settings.get("threads"))
    try:
        found = compare(ours, theirs, values, method, num_threads=threads)
    except ValueError as e:
        raise UsageError(str(e)) from None
    differs = any(not errors.relative <= options.rtol for errors in found.outputs.values())
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
    out = text_table(("output", *heads), rows)
    if not found.are_aligned:
        return out + "the programs have other instructions: only outputs were compared\n"
    worst = [value for value in found.worst(most) if value.errors.relative > 0]
    out += f"{len(found.values)} values compared\n"
    if worst:
        rows = [
            (f"{value.step} {value.operator} ({value.source.module or 'not known'})", *_cells(value.errors))
            for value in worst
        ]
        out += "\n" + text_table(("step", *heads), rows)
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
