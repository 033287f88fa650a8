"""Single operators here, with bound outputs, against eager PyTorch's `out=` form: alternating processes.

    python benches/operator_speed.py [FILTER ...] [--threads 1] [--pairs 7] [--sizes small medium large]

The rows are those of `operator_rows.py`, or with `--rows cliff` of `cliff_rows.py`. A process times every row
in one engine: the best of many calls, since other tenants of a machine only ever add time. Printed per row:
the median over processes of either engine, and of the ratio of neighbouring processes; then geometric means
and every row above `--slow` that is not of the small size.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from results import Tables, add_json_option
from timing import cpu_model

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benches")]
ENGINES = ("pteron", "eager")


def best_us(call: Callable[[], object], seconds: float) -> float:
    """The best time of a call in microseconds, over batches that are long enough for the clock."""
    call()
    start = time.perf_counter()
    call()
    once = max(time.perf_counter() - start, 1e-7)
    batch = max(1, int(20e-6 / once))
    best = math.inf
    end = time.perf_counter() + seconds
    count = 0
    while count < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(batch):
            call()
        best = min(best, (time.perf_counter() - start) / batch)
        count += 1
    return best * 1e6


def eager_call(case: Any, outputs: list[Any]) -> Callable[[], object]:
    """The call in eager PyTorch, into `outputs`."""
    import torch

    if case.operator == "_to_copy":
        return lambda: outputs[0].copy_(case.args[0])
    overload = getattr(getattr(torch.ops.aten, case.operator), case.overload)
    schema = overload._schema
    names = [a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    out = dict(zip(names, outputs, strict=False))
    taken = {a.name for a in schema.arguments}
    keywords = {k: v for k, v in case.kwargs.items() if k in taken}
    return lambda: overload(*case.args, **keywords, **out)


def is_bound(case: Any, outputs: list[Any]) -> bool:
    """Does our call write into the memory of `outputs`, rather than into its own?"""
    return all(t.is_contiguous() for t in outputs) and case.operator != "nonzero"


def our_call(case: Any, outputs: list[Any]) -> Callable[[], object]:
    """The call as a program of one instruction whose outputs lie in the caller's memory."""
    import torch

    import pteron
    from tests.ops.operator_case import dim_order
    from tests.ops.runtime_call import _value
    from tests.support.programs import MethodBuilder, build, schema

    method = MethodBuilder()
    inputs: list[Any] = []
    bound = is_bound(case, outputs)

    def value(v: Any) -> int:
        if isinstance(v, torch.Tensor):
            inputs.append(v)
            name = str(v.dtype).removeprefix("torch.")
            return method.input(method.tensor(list(v.shape), name, planned=False, dim_order=dim_order(v)))
        if isinstance(v, (list, tuple)) and any(isinstance(t, torch.Tensor) for t in v):
            ids = [-1 if t is None else value(t) for t in v]
            is_optional = case.operator.startswith("index")
            return method.value(schema.OptionalTensorList(ids) if is_optional else schema.TensorList(ids))
        return _value(method, v, inputs)

    written: list[int] = []
    arguments: list[int] = []
    for argument in case.call_arguments(outputs):
        if type(argument).__name__ != "Output":
            arguments.append(value(argument))
            continue
        (tensor,) = argument.tensors
        name = str(tensor.dtype).removeprefix("torch.")
        is_dynamic = case.operator == "nonzero"
        shape = [case.args[0].numel(), 1] if is_dynamic else list(tensor.shape)
        place = method.tensor(
            shape,
            name,
            planned=not bound,
            dynamic=is_dynamic,
            # Eager's `nonzero` gives a transposed view, which no program holds.
            dim_order=None if is_dynamic else dim_order(tensor),
        )
        written.append(place)
        arguments.append(place)
    arguments.append(written[0] if len(written) == 1 else method.value(schema.TensorList(written)))
    method.call(case.name, arguments)
    if bound:
        for place in written:
            method.output(place)
        buffers: list[Any] = [t if t.dtype == torch.bfloat16 else t.numpy() for t in outputs]
    else:
        # Bound buffers are row-major and of a known shape: the result stays in planned memory, one element
        # of it comes out.
        name = str(outputs[0].dtype).removeprefix("torch.")
        corner = method.output(method.tensor([1], name, planned=False))
        view = [written[0], method.int_list([1]), method.int_list([1]), method.int(0), corner, corner]
        method.call("aten::as_strided_copy.out", view)
        buffers = [torch.empty(1, dtype=outputs[0].dtype).numpy()]
    loaded = pteron.load(build(method)).load_method("forward", num_threads=torch.get_num_threads())
    given = [t if t.dtype == torch.bfloat16 else t.numpy() for t in inputs]
    return lambda: loaded.execute(given, outputs=buffers)


def time_row(row: Any, size: str, options: argparse.Namespace, result: dict[str, Any]) -> None:
    """Times one row of one size in the engine of this process: `us`, whether `right`."""
    import torch
    from operator_rows import SIZES

    from tests.ops.operator_case import OperatorCase

    operator, _, overload = row.overload.partition(".")
    case = OperatorCase(operator, overload, row.arguments(SIZES[size]), dict(row.keywords))
    expected = case.expected()
    case.kwargs.pop("dtype", None) if operator == "_to_copy" else None
    outputs = [torch.zeros_like(t) for t in expected]
    call = (our_call if options.worker == "pteron" else eager_call)(case, outputs)
    call()
    result["us"] = best_us(call, options.seconds)
    is_written = row.is_compared and is_bound(case, outputs)
    result["right"] = not is_written or all(
        torch.allclose(a.double(), b.double(), rtol=1e-2, atol=1e-2, equal_nan=True)
        for a, b in zip(outputs, expected, strict=True)
    )


def worker(options: argparse.Namespace) -> None:
    """Times every row in one engine and prints a line of JSON for each."""
    import torch

    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(mode=False)
    for row in importlib.import_module(f"{options.rows}_rows").ROWS:
        if options.filters and not any(f in row.name for f in options.filters):
            continue
        for size in options.sizes:
            torch.manual_seed(0)
            result: dict[str, Any] = {"name": row.name, "size": size}
            # What either side refuses is a line of the table, not the end of it.
            try:
                time_row(row, size, options, result)
            except Exception as error:
                result["error"] = str(error).splitlines()[0][:200]
            print(json.dumps(result), flush=True)
        gc.collect()


def copy_bandwidth() -> float:
    """What one thread copies from and to memory, in GB/s moved."""
    import torch

    torch.set_num_threads(1)
    a, b = torch.zeros(16 << 20), torch.zeros(16 << 20)
    return 2 * a.nbytes / best_us(lambda: b.copy_(a), 0.5) / 1e3


def spawn(options: argparse.Namespace, engine: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Runs one engine in a fresh process."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [
        sys.executable,
        __file__,
        *options.filters,
        "--worker",
        engine,
        "--threads",
        str(options.threads),
    ]
    command += ["--rows", options.rows, "--seconds", str(options.seconds), "--sizes", *options.sizes]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stdout[-2000:] + done.stderr[-4000:])
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {(r["name"], r["size"]): r for r in lines}


def geometric_mean(ratios: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, ratios))) if ratios else math.nan


def compare(options: argparse.Namespace) -> None:
    """Runs the processes and prints the table."""
    runs: dict[str, list[Any]] = {engine: [] for engine in ENGINES}
    for _ in range(options.pairs):
        for engine in ENGINES:
            runs[engine].append(spawn(options, engine))
    ratios: dict[str, list[float]] = {size: [] for size in options.sizes}
    slow = []
    tables = Tables()
    tables.begin(["row", "size", "here", "eager", "ratio"], "All rows")
    for key, first in runs["pteron"][0].items():
        name, size = key
        problem = first.get("error") or runs["eager"][0][key].get("error")
        if problem is None and not first["right"]:
            problem = "the result differs from eager PyTorch's"
        if problem is not None:
            print(f"{name:34} {size:6} | {problem}", flush=True)
            continue
        ours, peer = ([run[key]["us"] for run in runs[engine]] for engine in ENGINES)
        ratio = statistics.median(a / b for a, b in zip(ours, peer, strict=True))
        ratios[size].append(ratio)
        times = f"{statistics.median(ours):10.1f} {statistics.median(peer):10.1f} us"
        row = f"{name:34} {size:6} | {times} | {ratio:6.2f}x"
        print(row, flush=True)
        tables.row(name, size, *(f"{statistics.median(t):.1f} us" for t in (ours, peer)), f"{ratio:.2f}x")
        if ratio > options.slow and size != "small":
            slow.append((ratio, row))
    tables.begin(["size", "rows", "geometric mean"], "In short")
    for size, all_ratios in ratios.items():
        print(f"geometric mean, {size}: {geometric_mean(all_ratios):.2f}x of {len(all_ratios)} rows")
        tables.row(size, len(all_ratios), f"{geometric_mean(all_ratios):.2f}x")
    whole = [r for each in ratios.values() for r in each]
    print(f"geometric mean, all: {geometric_mean(whole):.2f}x")
    tables.row("all", len(whole), f"{geometric_mean(whole):.2f}x")
    tables.save(options)
    print(f"above {options.slow}x, but for small calls: {len(slow)}")
    for _, row in sorted(slow, reverse=True):
        print("  " + row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("filters", nargs="*")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--sizes", nargs="+", default=["small", "medium", "large"])
    parser.add_argument("--seconds", type=float, default=0.02)
    parser.add_argument("--rows", choices=["operator", "cliff"], default="operator")
    parser.add_argument("--slow", type=float, default=1.5)
    parser.add_argument("--worker", choices=ENGINES)
    add_json_option(parser)
    options = parser.parse_args()
    if options.worker:
        worker(options)
        return
    bandwidth = copy_bandwidth()
    print(f"{cpu_model()}; {options.threads} thread(s); one copies {bandwidth:.1f} GB/s (read and written)")
    print(f"microseconds here and in eager PyTorch (out=), median of {options.pairs} pairs of processes")
    compare(options)


if __name__ == "__main__":
    main()
