"""`program.run_async` and `program.submit`: calls in threads of the process, stopped while they run."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import numpy as np
import pytest

import pteron
from pteron.pooled_call import _PROCESS, IDLE
from tests.support.programs import (
    add_method,
    announced_endless_method,
    build,
    counter_method,
    delegate_method,
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


def idle_sessions(program: pteron.Program) -> int:
    return sum(len(found._idle) for found in _PROCESS.sessions[program].values())


def test_a_coroutine_gets_the_result() -> None:
    program = pteron.load(build(add_method()))

    async def both() -> list[Any]:
        return await asyncio.gather(*(program.run_async("forward", X, X * n) for n in range(20)))

    for n, result in enumerate(asyncio.run(both())):
        np.testing.assert_array_equal(result, X + X * n)
    assert 1 <= idle_sessions(program) <= IDLE


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
    assert idle_sessions(program) == 1, "the run has ended, and its session is there for the next call"


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


def test_a_session_whose_delegate_failed_is_not_used_again() -> None:
    class Failing(Announcing):
        def execute(self, ctx: Any, inputs: Any, outputs: Any) -> None:
            raise ValueError("cannot compute")

    runtime = pteron.Runtime()
    pteron.register_backend("Failing", Failing(), runtime=runtime)
    program = pteron.load(build(delegate_method("Failing")), runtime=runtime)
    for _ in range(3):
        with pytest.raises(pteron.DelegateError, match="cannot compute"):
            program.submit("forward", X, X).result(60)
        assert idle_sessions(program) == 0


def test_idle_sessions_are_few_and_go_with_the_program() -> None:
    import gc
    import weakref

    program = pteron.load(build(add_method()))
    calls = [program.submit("forward", X, X) for _ in range(50)]
    for call in calls:
        np.testing.assert_array_equal(call.result(60), X + X)
    assert idle_sessions(program) <= IDLE
    reference = weakref.ref(program)
    del program, calls, call
    gc.collect()
    assert reference() is None
