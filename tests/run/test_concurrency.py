"""Many threads: pooled sessions, sessions of their own, Python beside them."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import pteron
from tests.support.programs import (
    MethodBuilder,
    add_method,
    build,
    counter_method,
    delegate_method,
    endless_method,
)

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def _layers() -> bytes:
    rng = np.random.default_rng(0)
    m = MethodBuilder()
    last = m.input(m.tensor([32, 64]), "x")
    for i in range(4):
        w = m.constant(rng.random((64, 64), dtype=np.float32) - 0.5)
        out = m.tensor([32, 64])
        m.call("aten::mm.out", [last, w, out, out])
        last = out if i == 3 else m.tensor([32, 64])
        if i != 3:
            m.call("aten::relu.out", [out, last, last])
    m.output(last)
    return build(m)


def test_eight_threads_give_the_serial_bytes() -> None:
    program = pteron.load(_layers())
    inputs = [np.random.default_rng(i).random((32, 64), dtype=np.float32) for i in range(8)]
    serial = [program.load_method(num_threads=1)(x).tobytes() for x in inputs]

    def own(i: int) -> bool:
        method = program.load_method()
        return all(method(inputs[i]).tobytes() == serial[i] for _ in range(50))

    def pooled(i: int) -> bool:
        return all(program.run("forward", inputs[i]).tobytes() == serial[i] for _ in range(50))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(own, range(8)))
        assert all(pool.map(pooled, range(8)))


def test_a_pooled_call_that_fails_leaves_a_session_that_works() -> None:
    class Sometimes:
        num_outputs = 1

        def execute(self, ctx: Any, inputs: Any, outputs: Any) -> None:
            given = np.asarray(inputs[0])
            if given[0, 0] < 0:
                raise ValueError("negative")
            np.asarray(outputs[0])[...] = given

    made: list[Sometimes] = []

    class Backend:
        def init(self, ctx: Any, processed: memoryview, specs: Any) -> Sometimes:
            made.append(Sometimes())
            return made[-1]

    runtime = pteron.Runtime()
    pteron.register_backend("Sometimes", Backend(), runtime=runtime)
    program = pteron.load(build(delegate_method("Sometimes")), runtime=runtime)

    def work(i: int) -> None:
        x = X + 1 if i % 2 else X - 1
        for _ in range(20):
            if i % 2:
                np.testing.assert_array_equal(program.run("forward", x, x), x)
            else:
                with pytest.raises(pteron.DelegateError, match="negative"):
                    program.run("forward", x, x)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    # Sessions are reused, failed calls or not: no more of them than threads.
    assert 1 <= len(made) <= 6


def test_methods_with_state_are_refused_with_the_way_out() -> None:
    program = pteron.load(build(counter_method()))
    with pytest.raises(pteron.InputError, match=r"keeps state between calls.*load_method"):
        program.run("forward", np.zeros(2, np.float32))


def test_python_makes_progress_while_a_session_computes() -> None:
    # The loop never lets go by itself; held by the call, the interpreter would do nothing meanwhile.
    method = pteron.load(build(endless_method())).load_method(num_threads=1)
    rounds = 0
    is_done = threading.Event()

    def work() -> None:
        with pytest.raises(pteron.Cancelled):
            method(X, X)
        is_done.set()

    worker = threading.Thread(target=work)
    worker.start()
    end = time.monotonic() + 60
    while rounds < 200_000 and time.monotonic() < end:
        rounds += 1
    assert not is_done.is_set()
    while not is_done.wait(0.005) and time.monotonic() < end:
        method.cancel()
    worker.join(10)
    assert rounds == 200_000
    assert is_done.is_set()


def test_a_load_lets_python_run() -> None:
    done = threading.Event()
    data = _layers()

    def work() -> None:
        for _ in range(30):
            pteron.load(data).load_method()
        done.set()

    worker = threading.Thread(target=work)
    worker.start()
    worker.join(60)
    assert done.is_set()


def test_reentry_of_the_same_method_on_another_thread_is_busy() -> None:
    class Waits:
        num_outputs = 1

        def execute(self, ctx: Any, inputs: Any, outputs: Any) -> None:
            inside.set()
            assert go_on.wait(60)
            np.asarray(outputs[0])[...] = 0

    class Backend:
        def init(self, ctx: Any, processed: memoryview, specs: Any) -> Waits:
            return Waits()

    inside, go_on = threading.Event(), threading.Event()
    runtime = pteron.Runtime()
    pteron.register_backend("Waits", Backend(), runtime=runtime)
    method = pteron.load(build(delegate_method("Waits")), runtime=runtime).load_method()
    worker = threading.Thread(target=lambda: method(X, X))
    worker.start()
    assert inside.wait(60)
    for use in (lambda: method(X, X), method.get_state, method.reset_state, lambda: method.seed(1)):
        with pytest.raises(pteron.MethodBusy):
            use()
    go_on.set()
    worker.join(60)
    method_again = pteron.load(build(add_method())).load_method()
    np.testing.assert_array_equal(method_again(X, X), 2 * X)
