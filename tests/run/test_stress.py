"""Everything at once from eight threads: pooled calls, sessions, cancels, deadlines, loads and drops.

A call gives the bytes that it gives alone, or the error of the thing that was done to it; nothing else ever
comes out. `PTERON_STRESS_SECONDS` (default 2) sets how long.
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import pteron
from tests.support.programs import (
    MethodBuilder,
    add_method,
    build,
    counter_method,
    delegate_method,
    endless_method,
)

SECONDS = float(os.environ.get("PTERON_STRESS_SECONDS", "2"))
THREADS = 8
DEPTH = 64


class Double:
    """A delegate in Python."""

    num_outputs = 1

    def __init__(self, alive: list[int]) -> None:
        self.alive = alive
        alive.append(1)

    def execute(self, ctx: Any, inputs: Any, outputs: Any) -> None:
        np.asarray(outputs[0])[...] = 2 * np.asarray(inputs[0])

    def destroy(self) -> None:
        self.alive.append(-1)


class Backend:
    def __init__(self) -> None:
        self.alive: list[int] = []

    def init(self, ctx: Any, processed: memoryview, specs: Any) -> Double:
        return Double(self.alive)


def _layers() -> MethodBuilder:
    """`relu(x @ w0) @ w1`, over the pool of threads."""
    rng = np.random.default_rng(0)
    m = MethodBuilder("layers")
    x = m.input(m.tensor([48, DEPTH]), "x")
    first, positive, second = (m.tensor([48, DEPTH]) for _ in range(3))
    weights = [m.constant(rng.random((DEPTH, DEPTH), dtype=np.float32) - 0.5) for _ in range(2)]
    m.call("aten::mm.out", [x, weights[0], first, first])
    m.call("aten::relu.out", [first, positive, positive])
    m.call("aten::mm.out", [positive, weights[1], second, second])
    m.output(second)
    return m


def _file() -> bytes:
    endless, counter, delegate = endless_method(), counter_method(), delegate_method("Double", inputs=1)
    endless.name, counter.name, delegate.name = "endless", "counter", "delegate"
    return build(_layers(), add_method(name="add"), endless, counter, delegate)


class Stress:
    def __init__(self, path: Path) -> None:
        self.backend = Backend()
        self.runtime = pteron.Runtime(num_threads=3)
        pteron.register_backend("Double", self.backend, runtime=self.runtime)
        self.path = path
        self.path.write_bytes(_file())
        self.program = self.load()
        rng = np.random.default_rng(1)
        self.given = [rng.random((48, DEPTH), dtype=np.float32) for _ in range(4)]
        alone = self.program.load_method("layers", num_threads=1)
        self.expected = [alone.execute([x])[0].tobytes() for x in self.given]
        self.shared: list[pteron.Method] = [self.program.load_method("layers") for _ in range(3)]
        self.failures: list[str] = []
        self.done: dict[str, int] = {}
        self.end = time.monotonic() + SECONDS

    def load(self, *, mmap: bool = True) -> pteron.Program:
        return pteron.load(self.path, mmap=mmap, runtime=self.runtime)

    def work(self, seed: int) -> None:
        rng = random.Random(seed)
        actions: list[Callable[[random.Random], None]] = [
            self.pooled,
            self.own,
            self.with_deadline,
            self.cancelled,
            self.load_and_drop,
            self.in_a_shared_session,
            self.state,
            self.delegate,
            self.lent,
        ]
        while time.monotonic() < self.end and not self.failures:
            action = rng.choice(actions)
            try:
                action(rng)
            except BaseException as error:
                self.failures.append(f"seed {seed}, {action.__name__}: {type(error).__name__}: {error}")
                return
            self.done[action.__name__] = self.done.get(action.__name__, 0) + 1

    def pooled(self, rng: random.Random) -> None:
        i = rng.randrange(4)
        given = {"num_threads": rng.choice([1, 2, 3])} if rng.random() < 0.5 else {}
        (out,) = self.program.execute("layers", [self.given[i]], **given)
        assert out.tobytes() == self.expected[i]

    def own(self, rng: random.Random) -> None:
        method = self.program.load_method("layers")
        for i in range(3):
            assert method.execute([self.given[i]])[0].tobytes() == self.expected[i]

    def with_deadline(self, rng: random.Random) -> None:
        i = rng.randrange(4)
        try:
            (out,) = self.program.execute("layers", [self.given[i]], deadline=rng.choice([0.0, 0.0001, 0.01]))
            assert out.tobytes() == self.expected[i]
        except pteron.DeadlineExceeded:
            pass
        x = np.ones((2, 3), np.float32)
        try:
            self.program.execute("endless", [x, x], deadline=0.002)
        except pteron.DeadlineExceeded:
            return
        raise AssertionError("an endless loop came to an end")

    def cancelled(self, rng: random.Random) -> None:
        method = self.program.load_method("endless")
        is_done = threading.Event()

        def cancel() -> None:
            # Again and again: a cancel before the run has begun does nothing.
            while not is_done.wait(0.0005):
                method.cancel()

        helper = threading.Thread(target=cancel)
        helper.start()
        x = np.ones((2, 3), np.float32)
        try:
            method.execute([x, x])
        except pteron.Cancelled:
            return
        finally:
            is_done.set()
            helper.join()
        raise AssertionError("an endless loop came to an end")

    def load_and_drop(self, rng: random.Random) -> None:
        program = self.load(mmap=rng.random() < 0.5)
        i = rng.randrange(4)
        method = program.load_method("layers")
        if rng.random() < 0.5:
            del program
        (out,) = method.execute([self.given[i]])
        del method
        assert out.tobytes() == self.expected[i]
        if rng.random() < 0.05:
            gc.collect()

    def in_a_shared_session(self, rng: random.Random) -> None:
        at, i = rng.randrange(3), rng.randrange(4)
        with contextlib.suppress(pteron.MethodBusy, pteron.Cancelled):
            assert self.shared[at].execute([self.given[i]])[0].tobytes() == self.expected[i]
        if rng.random() < 0.3:
            self.shared[at].cancel()
        if rng.random() < 0.1:
            self.shared[at] = self.program.load_method("layers")

    def state(self, rng: random.Random) -> None:
        method = self.program.load_method("counter")
        one = np.ones(2, np.float32)
        for count in range(1, 4):
            np.testing.assert_array_equal(method.execute([one])[0], [10 + count, 20 + count])
        method.reset_state()
        np.testing.assert_array_equal(method.get_state()["total"], [10, 20])

    def delegate(self, rng: random.Random) -> None:
        x = np.full((2, 3), rng.randrange(100), np.float32)
        np.testing.assert_array_equal(self.program.execute("delegate", [x])[0], 2 * x)

    def lent(self, rng: random.Random) -> None:
        method = self.program.load_method("add")
        x = np.full((2, 3), rng.randrange(100), np.float32)
        (lent,) = method.execute([x, x], copy=False)
        look = np.asarray(lent)
        try:
            method.execute([x, x + 1])
        except pteron.OutputsInUseError:
            pass
        else:
            raise AssertionError("a call over memory that somebody looks at")
        del method, lent
        np.testing.assert_array_equal(look, 2 * x)


def test_everything_at_once(tmp_path: Path) -> None:
    stress = Stress(tmp_path / "program.pte")
    threads = [threading.Thread(target=stress.work, args=(seed,)) for seed in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS + 120)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    assert not stress.failures, stress.failures
    assert sum(stress.done.values()) > THREADS
    backend = stress.backend
    del stress, threads
    gc.collect()
    assert sum(backend.alive) == 0, "delegates outlive their sessions"
