"""Lowering here and in ExecuTorch: alternating processes, medians.

    python benches/lowering_speed.py [--models linear40 resnet50 bert12] [--pairs 5]
    python benches/lowering_speed.py --scaling

Each process builds the model with random weights, captures it, imports the exporter, and then times to_edge +
to_executorch + save, by wall clock and by processor time. "torch" is the part of it in PyTorch's own
decompositions, which both exporters run. `--scaling` times 10, 40 and 160 linear layers.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

from results import Tables, add_json_option

ENGINES = ("pteron", "executorch")
STAGES = ("to_edge", "to_executorch", "save")
SCALING = (10, 40, 160)
COLUMNS = [
    "model",
    "exporter",
    "to_edge, s",
    "of it torch",
    "to_executorch",
    "save",
    "total, processor",
    "total, wall",
]
COLUMNS += ["ratio, processor", "ratio, wall"]


class Stopwatch:
    """Wall and processor seconds of named parts, summed over entries."""

    def __init__(self) -> None:
        self.wall: dict[str, float] = {}
        self.processor: dict[str, float] = {}

    def time(self, name: str, call: Callable[[], Any]) -> Any:
        wall, processor = time.perf_counter(), time.process_time()
        try:
            return call()
        finally:
            self.wall[name] = self.wall.get(name, 0.0) + time.perf_counter() - wall
            self.processor[name] = self.processor.get(name, 0.0) + time.process_time() - processor


def worker(engine: str, name: str) -> dict[str, Any]:
    """Lowers one model in this process."""
    warnings.simplefilter("ignore")
    import torch
    from lowering_models import MODELS

    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    with torch.no_grad():
        program = torch.export.export(model.eval(), inputs)
    if engine == "pteron":
        from pteron.exir import to_edge
    else:
        from executorch.exir import to_edge
    watch = Stopwatch()
    inner = torch.export.exported_program
    original = inner._decompose_exported_program
    inner._decompose_exported_program = lambda *args, **options: watch.time(
        "torch", lambda: original(*args, **options)
    )
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.pte")
        edge = watch.time("to_edge", lambda: to_edge(program))
        manager = watch.time("to_executorch", edge.to_executorch)
        watch.time("save", lambda: manager.save(path))
        size = os.path.getsize(path)
    return {
        "wall": watch.wall,
        "processor": watch.processor,
        "nodes": len(program.graph.nodes),
        "file": size,
    }


def run_worker(engine: str, name: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--worker", engine, "--models", name]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def compare(name: str, pairs: int, tables: Tables) -> None:
    results: dict[str, list[dict[str, Any]]] = {engine: [] for engine in ENGINES}
    for _ in range(pairs):
        for engine in ENGINES:
            results[engine].append(run_worker(engine, name))
    first = results["pteron"][0]
    print(f"\n{name}: {first['nodes']} nodes captured, file of {first['file'] / 1e6:.0f} MB")
    print(f"{'':22}{'to_edge':>9}{'(torch)':>9}{'to_exec.':>10}{'save':>8}{'total':>8}")
    cells: dict[str, list[str]] = {engine: [] for engine in ENGINES}
    totals: dict[tuple[str, str], float] = {}
    for clock in ("wall", "processor"):
        for engine in ENGINES:
            median = {
                stage: statistics.median(run[clock][stage] for run in results[engine])
                for stage in (*STAGES, "torch")
            }
            total = statistics.median(sum(run[clock][s] for s in STAGES) for run in results[engine])
            totals[clock, engine] = total
            stages = [median["to_edge"], median["torch"], median["to_executorch"], median["save"]]
            cells[engine] += [f"{s:.2f}" for s in (stages if clock == "processor" else [])] + [f"{total:.2f}"]
            print(
                f"{engine:11}{clock:11}{median['to_edge']:9.2f}{median['torch']:9.2f}"
                f"{median['to_executorch']:10.2f}{median['save']:8.2f}{total:8.2f}"
            )
        print(f"{'':11}ratio {clock}: {totals[clock, 'pteron'] / totals[clock, 'executorch']:.2f}x")
    for engine in ENGINES:
        ratios = [totals[clock, engine] / totals[clock, "executorch"] for clock in ("processor", "wall")]
        wall, *processor = cells[engine]
        tables.row(name, engine, *processor, wall, *(f"{ratio:.2f}x" for ratio in ratios))


def scaling(pairs: int) -> None:
    print("processor seconds of to_edge + to_executorch + save, linear layers of 1024 x 1024")
    for engine in ENGINES:
        row = []
        for layers in SCALING:
            runs = [run_worker(engine, f"linear{layers}") for _ in range(pairs)]
            row.append(statistics.median(sum(run["processor"][stage] for stage in STAGES) for run in runs))
        shown = "".join(
            f"{layers:6d}: {seconds:6.2f} s ({seconds / layers * 1e3:5.1f} ms per layer)"
            for layers, seconds in zip(SCALING, row, strict=True)
        )
        print(f"{engine:11}{shown}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=["linear40", "resnet50", "bert12"])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--scaling", action="store_true")
    parser.add_argument("--worker", choices=ENGINES)
    add_json_option(parser)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(worker(options.worker, options.models[0])))
    elif options.scaling:
        scaling(options.pairs)
    else:
        tables = Tables()
        tables.begin(COLUMNS)
        for name in options.models:
            compare(name, options.pairs, tables)
        tables.save(options)


if __name__ == "__main__":
    main()
