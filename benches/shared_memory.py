"""Memory of several processes that load one program: how much of it they share.

    python benches/shared_memory.py [--processes 8] [--megabytes 64]

A program of linear layers, once as it is and once with packed weights. Each process loads it, calls it once,
and waits until all have done so; then each tells its memory beyond what it had after importing pteron, from
`/proc/self/smaps_rollup`. "proportional" divides every shared page by the number of its processes, so that
the sum is what the machine has less. Linux only.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path

from results import Tables, add_json_option

WIDTH = 1024


def worker(file: str, pipe: Connection) -> None:
    """One process: tells that it has called the program, and its memory when it is asked to."""
    import numpy as np

    import pteron

    before = pteron.metrics.memory()
    predictor = pteron.Predictor(file, num_threads=1)
    (spec,) = predictor.inputs
    predictor({spec.name: np.ones((1, WIDTH), np.float32)})
    pipe.send("called")
    pipe.recv()
    after = pteron.metrics.memory()
    assert before is not None
    assert after is not None
    assert before.proportional is not None
    assert after.proportional is not None
    pipe.send((after.resident - before.resident, after.proportional - before.proportional))
    pipe.recv()


def measured(file: str, count: int) -> tuple[int, int]:
    """Sums of resident and proportional bytes of `count` processes."""
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for _ in range(count):
        ours, theirs = context.Pipe()
        process = context.Process(target=worker, args=(file, theirs))
        process.start()
        pipes.append(ours)
        processes.append(process)
    for pipe in pipes:
        pipe.recv()
    for pipe in pipes:
        pipe.send("tell")
    told = [pipe.recv() for pipe in pipes]
    for pipe in pipes:
        pipe.send("end")
    for process in processes:
        process.join()
    return sum(resident for resident, _ in told), sum(proportional for _, proportional in told)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--megabytes", type=int, default=64)
    add_json_option(parser)
    options = parser.parse_args()
    import torch

    import pteron

    count = max(1, options.megabytes * (1 << 20) // (WIDTH * WIDTH * 4))
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(count))).eval()
    columns = ["file", "weights, MB", "processes", "resident, MB", "proportional, MB", "for each, MB"]
    tables = Tables()
    tables.begin(columns)
    print(" ".join(f"{column:>16}" for column in columns))
    with tempfile.TemporaryDirectory() as folder:
        for kind, is_packed in (("plain", False), ("packed", True)):
            file = str(Path(folder, f"{kind}.pte"))
            made = pteron.export(
                model, (torch.randn(1, WIDTH),), packed_weights=is_packed, check=False, report=False
            )
            made.save(file)
            resident, proportional = measured(file, options.processes)
            row = [
                kind,
                f"{count * WIDTH * WIDTH * 4 / 1e6:.0f}",
                str(options.processes),
                f"{resident / 1e6:.0f}",
                f"{proportional / 1e6:.0f}",
                f"{proportional / options.processes / 1e6:.1f}",
            ]
            print(" ".join(f"{cell:>16}" for cell in row), flush=True)
            tables.row(*row)
    tables.save(options)


if __name__ == "__main__":
    main()
