"""Rows by a predictor in one, two and more worker processes: processor time per row, rows per second.

    python benches/worker_scaling.py PROGRAM.pte [--workers 1 2] [--rows 4000] [--batch 64] [--pairs 5]

Each worker has one thread, its share of the rows, and starts them together with the others. Inputs are zeros
at the largest extents of their dimensions; the batch is the first. The time of the processor per row tells
what a worker costs beside another (shared caches, bandwidth) also where other processes use the machine; rows
per second tell something on a quiet machine alone. Start: from the start of a process to its first result.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import time
from typing import Any

from results import Tables, add_json_option
from timing import cpu_model


def inputs(predictor: Any, rows: int) -> dict[str, Any]:
    """Zeros at the largest extents."""
    import numpy as np

    found = {}
    for spec in predictor.inputs:
        shape = [dim if isinstance(dim, int) else dim.max for dim in spec.shape]
        if spec.name in predictor.batching.inputs:
            shape[0] = rows
        found[spec.name] = np.zeros(shape, spec.dtype)
    return found


def work(predictor: Any, rows: int, batch: int, begun: float, ready: Any, results: Any) -> None:
    """One worker: processor seconds, seconds, and seconds from its start to its first result."""
    given = inputs(predictor, batch)
    predictor(given)
    start = time.time() - begun
    ready.wait()
    clock, used = time.perf_counter(), time.process_time()
    for _ in range(rows // batch):
        predictor(given)
    results.put((time.process_time() - used, time.perf_counter() - clock, start))


def measure(predictor: Any, workers: int, rows: int, batch: int) -> tuple[float, float, float]:
    """Processor seconds per row, rows per second, seconds of a start."""
    context = multiprocessing.get_context("spawn")
    ready, results, share = context.Barrier(workers), context.Queue(), rows // workers
    arguments = (predictor, share, batch, time.time(), ready, results)
    processes = [context.Process(target=work, args=arguments) for _ in range(workers)]
    for process in processes:
        process.start()
    found = [results.get() for _ in processes]
    for process in processes:
        process.join()
    done = share // batch * batch * workers
    return (
        sum(used for used, _, _ in found) / done,
        done / max(t for _, t, _ in found),
        max(s for *_, s in found),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("program")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--pairs", type=int, default=5)
    add_json_option(parser)
    options = parser.parse_args()
    import pteron

    predictor = pteron.Predictor(options.program, num_threads=1)
    print(f"{cpu_model()}, load {os.getloadavg()[0]:.1f}")
    tables = Tables()
    tables.begin(["workers", "processor time per row", "rows per second", "start"])
    found: dict[int, list[tuple[float, float, float]]] = {workers: [] for workers in options.workers}
    for _ in range(options.pairs):
        for workers, measured in found.items():
            measured.append(measure(predictor, workers, options.rows, options.batch))
    for workers, measured in found.items():
        each, rate, start = (statistics.median(column) for column in zip(*measured, strict=True))
        cells = (f"{each * 1e6:.1f} us", f"{rate:.0f}", f"{start:.2f} s")
        print(f"workers {workers}", *cells)
        tables.row(workers, *cells)
    tables.save(options)


if __name__ == "__main__":
    main()
