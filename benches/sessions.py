"""Sessions side by side, and Python beside a session.

    python benches/sessions.py [--seconds 1.0] [--rounds 5]

Throughput of 1, 2, 4 and 8 sessions with one thread each, over that of one session, and of `program.run` from
as many threads; then how much of its idle progress a Python thread keeps beside a session that computes.
Every figure is the best of its rounds, which alternate, so that what else runs on the machine disturbs all
alike.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from collections.abc import Callable

import numpy as np
import torch
from results import Tables, add_json_option

import pteron
from pteron.exir import to_edge

WIDTH, ROWS = 512, 128


class Layers(torch.nn.Module):
    """Eight products of a millisecond each, weights of 8 MB that all sessions share."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(8)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def calls_per_second(run: Callable[[int], None], threads: int, seconds: float) -> float:
    """Calls per second of `threads` threads that call `run(thread)` again and again."""
    counts = [0] * threads
    is_ending = threading.Event()
    start_line = threading.Barrier(threads + 1)

    def work(index: int) -> None:
        start_line.wait()
        while not is_ending.is_set():
            run(index)
            counts[index] += 1

    workers = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
    for worker in workers:
        worker.start()
    start_line.wait()
    start = time.perf_counter()
    time.sleep(seconds)
    is_ending.set()
    for worker in workers:
        worker.join()
    return sum(counts) / (time.perf_counter() - start)


def progress(seconds: float) -> int:
    """Rounds of a loop in Python within `seconds`."""
    end = time.perf_counter() + seconds
    rounds = 0
    while time.perf_counter() < end:
        rounds += sum(range(100)) > 0
    return rounds


def beside_a_session(method: pteron.Method, x: np.ndarray, seconds: float) -> int:
    """The same while another thread computes."""
    is_ending = threading.Event()

    def work() -> None:
        while not is_ending.is_set():
            method.execute([x], num_threads=1)

    worker = threading.Thread(target=work)
    worker.start()
    rounds = progress(seconds)
    is_ending.set()
    worker.join()
    return rounds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    add_json_option(parser)
    options = parser.parse_args()

    torch.manual_seed(0)
    x = torch.randn(ROWS, WIDTH)
    program = pteron.load(to_edge(torch.export.export(Layers(), (x,))).to_executorch().buffer)
    given = x.numpy()
    counts = (1, 2, 4, 8)
    methods = [program.load_method(num_threads=1) for _ in range(max(counts))]
    own: dict[int, list[float]] = {n: [] for n in counts}
    pooled: dict[int, list[float]] = {n: [] for n in counts}
    idle: list[int] = []
    beside: list[int] = []
    for _ in range(options.rounds):
        for n in counts:
            own[n].append(calls_per_second(lambda i: methods[i](given), n, options.seconds))
            pooled[n].append(calls_per_second(lambda _: program.run("forward", given), n, options.seconds))
        idle.append(progress(options.seconds))
        beside.append(beside_a_session(methods[0], given, options.seconds))
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    one = max(own[1])
    best = max(max(figures) for figures in own.values())
    tables = Tables()
    tables.begin(
        [
            "sessions",
            "calls per second",
            "of one session",
            "of the best",
            "`program.run` from as many threads",
        ]
    )
    for n in counts:
        figure = max(own[n])
        ratios = (f"{figure / one:.2f}x", f"{figure / best:.2f}")
        tables.row(n, f"{figure:.0f}", *ratios, f"{max(pooled[n]):.0f}")
        print(
            f"{n} sessions: {figure:7.1f} calls/s, {figure / one:.2f}x one session, "
            f"{figure / best:.2f} of the best; program.run from {n} threads: {max(pooled[n]):7.1f}"
        )
    print(f"Python beside a session: {max(beside) / max(idle):.2f} of its idle progress")
    tables.begin(["Python beside a session", "of its idle progress"])
    tables.row("loop of sums", f"{max(beside) / max(idle):.2f}")
    tables.save(options)


if __name__ == "__main__":
    main()
