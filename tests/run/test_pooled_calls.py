"""`program.execute`: calls with flat lists in sessions from a pool, with all that a call can be given."""

from __future__ import annotations

import threading
import time
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
    dynamic_add_method,
    endless_method,
)

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_it_gives_what_a_session_gives() -> None:
    program = pteron.load(build(add_method()))
    (result,) = program.execute("forward", [X, X])
    np.testing.assert_array_equal(result, X + X)
    assert result.flags.owndata or result.base is not None
    (other,) = program.execute("forward", (X, X), num_threads=1)
    assert not np.shares_memory(result, other)


def test_outputs_are_bound() -> None:
    program = pteron.load(build(dynamic_add_method()))
    for rows in (2, 8, 1):
        x = np.full((rows, 3), rows, np.float32)
        target = np.empty_like(x)
        (result,) = program.execute("forward", [x, x], outputs=[target])
        assert result is target
        np.testing.assert_array_equal(target, x + x)
    with pytest.raises(pteron.InputError, match="wrong number of output buffers"):
        program.execute("forward", [X, X], outputs=[])
    with pytest.raises(pteron.InputError, match="output"):
        program.execute("forward", [X, X], outputs=[np.empty((9, 9), np.float32)])


def test_deadlines_and_budgets_stop_it_and_the_pool_goes_on() -> None:
    program = pteron.load(build(endless_method(), add_method(name="add")))
    inputs: list[Any] = [np.ones(s.shape, s.dtype) for s in program.inputs("forward")]
    start = time.monotonic()
    with pytest.raises(pteron.DeadlineExceeded):
        program.execute("forward", inputs, deadline=0.05)
    assert time.monotonic() - start < 30
    with pytest.raises(pteron.LimitExceeded, match="budget"):
        program.execute("forward", inputs, budget=1000)
    with pytest.raises(pteron.InputError, match="deadline"):
        program.execute("forward", inputs, deadline=-1)
    np.testing.assert_array_equal(program.execute("add", [X, X])[0], X + X)


class Steps:
    def __init__(self, error: Exception | None = None, at: str = "step_begin") -> None:
        self.names: list[str] = []
        self.error, self.at = error, at

    def _tell(self, what: str, name: str) -> None:
        self.names.append(name)
        if self.error is not None and what == self.at:
            raise self.error

    def step_begin(self, step: Any) -> None:
        self._tell("step_begin", step.name)

    def step_end(self, step: Any, error: str | None) -> None:
        self._tell("step_end", step.name)


def test_a_tracer_watches_and_what_it_raises_comes_out() -> None:
    program = pteron.load(build(endless_method(), add_method(name="add")))
    tracer = Steps()
    program.execute("add", [X, X], tracer=tracer)
    assert len(tracer.names) == 2
    assert tracer.names[0] == tracer.names[1]
    inputs: list[Any] = [np.ones(s.shape, s.dtype) for s in program.inputs("forward")]
    for at, calls in (("step_begin", 1), ("step_end", 2)):
        tracer = Steps(KeyError("enough"), at)
        with pytest.raises(KeyError, match="enough"):
            program.execute("forward", inputs, tracer=tracer)
        assert len(tracer.names) == calls, "nothing is told after that"
    method = program.load_method("forward")
    with pytest.raises(KeyError, match="enough"):
        method.execute(inputs, tracer=Steps(KeyError("enough")))
    np.testing.assert_array_equal(program.execute("add", [X, X])[0], X + X)


def test_what_a_tracer_raises_inside_a_delegate_stops_the_run() -> None:
    class Reporting:
        num_outputs = 1

        def init(self, ctx: Any, processed: Any, specs: Any) -> Reporting:
            return self

        def execute(self, ctx: Any, inputs: Any, outputs: Any) -> None:
            ctx.event("part", 1, 2)

    class Refusing:
        def delegate_event(self, *event: Any) -> None:
            raise ValueError("no events")

    runtime, backend = pteron.Runtime(), Reporting()
    pteron.register_backend("Reporting", backend, runtime=runtime)
    program = pteron.load(build(delegate_method("Reporting")), runtime=runtime)
    with pytest.raises(ValueError, match="no events"):
        program.execute("forward", [X, X], tracer=Refusing())
    program.execute("forward", [X, X])


def test_methods_with_state_are_refused() -> None:
    program = pteron.load(build(counter_method()))
    inputs = [np.ones(s.shape, s.dtype) for s in program.inputs("forward")]
    with pytest.raises(pteron.InputError, match="load_method"):
        program.execute("forward", inputs)
    with pytest.raises(pteron.MethodNotFoundError):
        program.execute("nothing", [])


def test_any_number_of_threads() -> None:
    program = pteron.load(build(dynamic_add_method()))
    failures: list[object] = []

    def work(rows: int) -> None:
        x = np.full((rows, 3), rows, np.float32)
        target = np.empty_like(x)
        for _ in range(200):
            target[:] = -1
            program.execute("forward", [x, x], outputs=[target], deadline=60)
            if not (target == 2 * rows).all():
                failures.append(target.copy())

    threads = [threading.Thread(target=work, args=(rows,)) for rows in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_buffers_are_listed_without_loading() -> None:
    m = MethodBuilder()
    x = m.input(m.tensor([2]), "x")
    first = m.state("first", np.ones(2, np.float32))
    m.state("second", np.zeros((3, 1), np.int64))
    m.add(x, first, m.output(m.tensor([2])))
    program = pteron.load(build(m, add_method(name="other")))
    found = [(b.name, b.dtype, b.shape, b.nbytes, b.is_planned) for b in program.buffers()]
    assert found == [("first", "float32", (2,), 8, True), ("second", "int64", (3, 1), 24, True)]
    assert [b.name for b in program.buffers()] == list(program.load_method().get_state())
    assert program.buffers("other") == ()
    with pytest.raises(pteron.MethodNotFoundError):
        program.buffers("nothing")
