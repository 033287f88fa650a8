"""`program.run_async` and `program.submit`: calls in threads of the process, stopped while they run."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import numpy as np
import pytest

import pteron
from tests.support.own_interpreter import output_of
from tests.support.programs import (
    add_method,
    announced_endless_method,
    build,
    counter_method,
    delegate_method,
    endless_method,
)

X = np.arange(6, dtype=np.float32).reshape(2, 3)


class Announcing:
    """A delegate that says that its run has begun."""

    num_outputs = 1

    def __init__(self) -> None:
        self.has_begun = threading.Event()

    def init(self, *_: Any) -> Any:
        return self

    def execute(self, ctx: Any, inputs: Any, outputs: Any) -> None:
        self.has_begun.set()


@pytest.fixture
def endless() -> tuple[pteron.Program, threading.Event]:
    """A program that runs for ever, and the event of its beginning."""
    runtime, delegate = pteron.Runtime(), Announcing()
    pteron.register_backend("Announcing", delegate, runtime=runtime)
    program = pteron.load(build(announced_endless_method("Announcing")), runtime=runtime)
    # State of a delegate is asked for by a session that is stopped at once.
    return program, delegate.has_begun


def most_idle() -> int:
    """Idle sessions that a program keeps of a method."""
    return max(pteron.Runtime.shared().num_threads, 2)


def test_a_coroutine_gets_the_result() -> None:
    program = pteron.load(build(add_method()))

    async def both() -> list[Any]:
        return await asyncio.gather(*(program.run_async("forward", X, X * n) for n in range(20)))

    for n, result in enumerate(asyncio.run(both())):
        np.testing.assert_array_equal(result, X + X * n)
    assert 1 <= program.idle_sessions() <= most_idle()


def test_the_loop_goes_on_and_cancelling_stops_the_run(
    endless: tuple[pteron.Program, threading.Event],
) -> None:
    program, has_begun = endless

    async def stopped() -> float:
        task = asyncio.ensure_future(program.run_async("forward", X, X))
        while not has_begun.is_set():
            await asyncio.sleep(0.001)
        begun = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return time.monotonic() - begun

    assert asyncio.run(stopped()) < 30
    assert program.idle_sessions() == 1, "the run has ended, and its session is there for the next call"


def test_a_timeout_stops_the_run(endless: tuple[pteron.Program, threading.Event]) -> None:
    program, _ = endless

    async def limited() -> None:
        await asyncio.wait_for(program.run_async("forward", X, X), 0.05)

    with pytest.raises(TimeoutError):
        asyncio.run(limited())


def test_errors_arrive_in_the_coroutine() -> None:
    program = pteron.load(build(add_method()))
    with pytest.raises(pteron.InputError, match="'y'"):
        asyncio.run(program.run_async("forward", X, X[:1]))
    with pytest.raises(pteron.MethodNotFoundError):
        asyncio.run(program.run_async("nothing", X))


def test_state_is_refused_as_by_run() -> None:
    program = pteron.load(build(counter_method()))
    with pytest.raises(pteron.InputError, match="keeps state between calls"):
        program.submit("forward", X[0, :2]).result(60)


def test_a_handle_stops_a_call_and_says_whether_it_did(
    endless: tuple[pteron.Program, threading.Event],
) -> None:
    program, has_begun = endless
    call = program.submit("forward", X, X)
    assert has_begun.wait(60)
    assert not call.done()
    with pytest.raises(TimeoutError):
        call.result(0.01)
    assert call.cancel()
    assert call.done()
    with pytest.raises(pteron.Cancelled):
        call.result()
    quick = pteron.load(build(add_method())).submit("forward", X, X)
    np.testing.assert_array_equal(quick.result(60), X + X)
    assert not quick.cancel()


def test_calls_that_were_cancelled_leave_no_trace_in_the_next(
    endless: tuple[pteron.Program, threading.Event],
) -> None:
    program, _ = endless
    for _ in range(20):
        assert program.submit("forward", X, X).cancel()
    add = pteron.load(build(add_method()))
    for _ in range(20):
        np.testing.assert_array_equal(add.submit("forward", X, X).result(60), X + X)
    counters = pteron.metrics.counters()["program, forward"]
    assert counters.stopped >= 20


def test_a_session_whose_delegate_failed_goes_on_as_with_run() -> None:
    class Sometimes(Announcing):
        def execute(self, ctx: Any, inputs: Any, outputs: Any) -> None:
            if np.asarray(inputs[0])[0, 0] < 0:
                raise ValueError("cannot compute")
            np.asarray(outputs[0])[...] = np.asarray(inputs[0])

    runtime = pteron.Runtime()
    pteron.register_backend("Sometimes", Sometimes(), runtime=runtime)
    program = pteron.load(build(delegate_method("Sometimes")), runtime=runtime)
    for _ in range(3):
        with pytest.raises(pteron.DelegateError, match="cannot compute"):
            program.submit("forward", X - 1, X).result(60)
        np.testing.assert_array_equal(program.submit("forward", X, X).result(60), X)


def test_idle_sessions_are_few_and_go_with_the_program() -> None:
    import gc
    import weakref

    program = pteron.load(build(add_method()))
    calls = [program.submit("forward", X, X) for _ in range(50)]
    for call in calls:
        np.testing.assert_array_equal(call.result(60), X + X)
    assert program.idle_sessions() <= most_idle()
    reference = weakref.ref(program)
    del program, calls, call
    gc.collect()
    assert reference() is None


def test_a_token_stops_calls_that_run_and_those_that_come_later(
    endless: tuple[pteron.Program, threading.Event],
) -> None:
    program, has_begun = endless
    token = pteron.CancelToken()
    assert not token.is_cancelled
    stopper = threading.Thread(target=lambda: (has_begun.wait(60), token.cancel()))
    stopper.start()
    with pytest.raises(pteron.Cancelled):
        program.execute("forward", [X, X], cancel=token)
    stopper.join()
    assert token.is_cancelled
    with pytest.raises(pteron.Cancelled):
        program.execute("forward", [X, X], cancel=token)
    with pytest.raises(pteron.Cancelled):
        program.load_method().execute([X, X], cancel=token)
    add = pteron.load(build(add_method()))
    with pytest.raises(pteron.Cancelled):
        add.execute("forward", [X, X], cancel=token)
    (result,) = add.execute("forward", [X, X], cancel=pteron.CancelToken())
    np.testing.assert_array_equal(result, X + X)
    with pytest.raises(pteron.InputTypeError, match="cancel"):
        add.execute("forward", [X, X], cancel=True)  # type: ignore[arg-type]


def test_one_token_stops_calls_in_many_threads() -> None:
    program = pteron.load(build(endless_method()))
    inputs: list[Any] = [np.ones(spec.shape, spec.dtype) for spec in program.inputs()]
    token, outcomes = pteron.CancelToken(), []

    def work() -> None:
        with pytest.raises(pteron.Cancelled):
            program.execute("forward", inputs, cancel=token)
        outcomes.append("stopped")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    token.cancel()
    for thread in threads:
        thread.join(60)
    assert outcomes == ["stopped"] * 8
    assert program.idle_sessions() <= most_idle()


def test_runs_are_counted_when_that_is_asked_for() -> None:
    program = pteron.load(build(add_method()))
    label = "program, forward, runs"
    before = pteron.metrics.counters().get(label, pteron.metrics.Counters())
    program.run("forward", X, X)
    assert pteron.metrics.counters().get(label, pteron.metrics.Counters()) == before, "nobody asked"
    pteron.metrics.count_runs()
    try:
        program.run("forward", X, X)
        program.execute("forward", [X, X])
        program.load_method()(X, X)
        with pytest.raises(pteron.InputError):
            program.run("forward", X, X[:1])
        with pytest.raises(pteron.DeadlineExceeded):
            program.execute("forward", [X, X], deadline=0.0)
    finally:
        pteron.metrics.count_runs(False)
    program.run("forward", X, X)
    after = pteron.metrics.counters()[label]
    assert (after.calls - before.calls, after.refused - before.refused) == (5, 1)
    assert after.stopped - before.stopped == 1
    assert after.seconds > before.seconds
    assert f'pteron_calls_total{{model="{label}"}}' in pteron.metrics.text()


MANY_AT_ONCE = """
    import sys, threading
    import numpy as np, pteron
    from tests.support.programs import MethodBuilder, build
    m = MethodBuilder()
    # 48 MiB of planned memory, which the allocator takes from the system and gives back; a small output.
    x, one = m.input(m.tensor([4 << 20]), "x"), m.input(m.tensor([1]), "one")
    y, z = m.tensor([4 << 20]), m.tensor([4 << 20])
    m.add(x, x, y)
    m.add(y, y, z)
    m.add(one, one, m.output(m.tensor([1])))
    program = pteron.load(build(m), runtime=pteron.Runtime(num_threads=2, disabled_rules=["all"]))
    given, wall = [np.ones(4 << 20, np.float32), np.ones(1, np.float32)], threading.Barrier(24)

    class Waiting:
        def step_begin(self, step):
            if not self.has_waited:
                self.has_waited = True
                wall.wait(60)  # all 24 calls are in the middle of their runs

        def __init__(self):
            self.has_waited = False

    def work():
        (result,) = program.execute("forward", given, tracer=Waiting())
        assert result[0] == 2

    program.execute("forward", given)
    before = pteron.metrics.memory().resident
    threads = [threading.Thread(target=work) for _ in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(program.idle_sessions(), (pteron.metrics.memory().resident - before) >> 20)
"""


@pytest.mark.skipif(
    pteron.metrics.memory() is None, reason="this system does not tell the memory of a process"
)
def test_the_memory_of_many_calls_at_once_goes_back() -> None:
    idle, megabytes = map(int, output_of(MANY_AT_ONCE).split())
    assert idle == 2, "as many as the runtime has threads"
    assert megabytes < 100, "of the 24 sessions of 48 MB each, two stayed, of which one was there before"
