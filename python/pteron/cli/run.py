"""Run a method once: inputs from files or made up, outputs printed, saved or compared with a reference."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

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
from pteron.cli.failure import UsageError
from pteron.cli.inputs import add_inputs, npz, read_inputs, read_npz
from pteron.cli.numbers import count, tolerance

EXAMPLE = "pteron run model.pte -i x=1x8:float32:0..1 --save outputs.npz"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_program(parser)
    add_method(parser)
    add_inputs(parser)
    add_runtime(parser)
    parser.add_argument("--threads", type=count, help="threads of the run")
    parser.add_argument("--save", type=Path, metavar="FILE.npz", help="write the outputs by name")
    parser.add_argument("--check-outputs", type=Path, metavar="FILE.npz", help="compare with these outputs")
    parser.add_argument("--cases", action="store_true", help="run the test cases that the file brings along")
    parser.add_argument("--rtol", type=tolerance, default=1e-5, help="relative tolerance")
    parser.add_argument("--atol", type=tolerance, default=1e-8, help="absolute tolerance")
    add_json(parser)


def execute(options: argparse.Namespace) -> int:
    """1 where an output differs."""
    program = load(options)
    method = method_of(program, options.method)
    if options.cases:
        return _cases(program, method, options)
    values = read_inputs(options.input, program.inputs(method), options.seed)
    session = program.load_method(method, num_threads=options.threads)
    outputs = {
        spec.name: result
        for spec, result in zip(program.outputs(method), session.execute(values), strict=True)
    }
    arrays = {name: np.asarray(value) for name, value in outputs.items() if value is not None}
    if options.save is not None:
        write_file(options.save, npz(arrays))
    differences = []
    if options.check_outputs is not None:
        differences = compare(arrays, read_npz(options.check_outputs), options.rtol, options.atol)
    if options.json:
        print_json(
            {"outputs": [summary(name, value) for name, value in arrays.items()], "differences": differences}
        )
    else:
        for name, value in arrays.items():
            print(_line(summary(name, value)))
        for difference in differences:
            print(difference["text"])
    return 1 if differences else 0


def summary(name: str, value: npt.NDArray[Any]) -> dict[str, Any]:
    """What is printed of an output."""
    out: dict[str, Any] = {"name": name, "dtype": str(value.dtype), "shape": list(value.shape)}
    if value.size and value.dtype.kind in "fiub":
        wide = value.astype(np.float64)
        finite = wide[np.isfinite(wide)]
        out["not_finite"] = int(wide.size - finite.size)
        if finite.size:
            out |= {"min": float(finite.min()), "max": float(finite.max()), "mean": float(finite.mean())}
        out["first"] = [float(v) if np.isfinite(v) else str(v) for v in wide.ravel()[:4]]
    return out


def compare(
    ours: dict[str, npt.NDArray[Any]], theirs: dict[str, npt.NDArray[Any]], rtol: float, atol: float
) -> list[dict[str, Any]]:
    """Where outputs differ from a reference by more than `atol + rtol * |reference|`, or are missing."""
    found: list[dict[str, Any]] = []
    for name, expected in theirs.items():
        mine = ours.get(name)
        if mine is None or mine.shape != expected.shape:
            got = "no such output" if mine is None else f"shape {list(mine.shape)}"
            found.append({"name": name, "text": f"{name}: expected shape {list(expected.shape)}, got {got}"})
            continue
        a, b = mine.astype(np.float64), expected.astype(np.float64)
        bad = ~np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True)
        if bad.any():
            with np.errstate(invalid="ignore"):
                most = float(np.nanmax(np.abs(a - b)))
            at = [int(n) for n in np.argwhere(bad)[0]]
            count = int(bad.sum())
            text = f"{name}: {count} of {bad.size} elements differ, by at most {most:.3g}; the first at {at}"
            found.append({"name": name, "text": text, "count": count, "max_abs": most, "first": at})
    return found


def _cases(program: pteron.Program, method: str, options: argparse.Namespace) -> int:
    cases = program.test_cases(method)
    if not cases:
        raise UsageError(f"the file has no test cases of {method}: it is no bundled program")
    results = [
        program.verify(method, case, rtol=options.rtol, atol=options.atol) for case in range(len(cases))
    ]
    if options.json:
        print_json([{"case": result.case, "passed": result.passed} for result in results])
    else:
        for result in results:
            print(f"case {result.case}: {'passed' if result.passed else 'differs'}")
    return 0 if all(result.passed for result in results) else 1


def _line(facts: dict[str, Any]) -> str:
    extents = ", ".join(map(str, facts["shape"]))
    text = f"{facts['name']}: {facts['dtype']}[{extents}]"
    if "min" in facts:
        text += f", {facts['min']:.6g} to {facts['max']:.6g}, mean {facts['mean']:.6g}"
    if facts.get("not_finite"):
        text += f", {facts['not_finite']} not finite"
    if "first" in facts:
        values = (f"{v:.6g}" if isinstance(v, float) else v for v in facts["first"])
        text += f": {', '.join(values)}{', ...' if np.prod(facts['shape']) > 4 else ''}"
    return text
