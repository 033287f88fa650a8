"""`execute(tracer=)`: what a tracer is told, and what it does to a run."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import pteron
from tests.support.programs import MethodBuilder, add_method, build, delegate_method, endless_method

X = np.arange(6, dtype=np.float32).reshape(2, 3)


class Recorder:
    """Keeps everything."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args: self.events.append((name, *args))

    def of(self, name: str) -> list[tuple[Any, ...]]:
        return [event[1:] for event in self.events if event[0] == name]


def _chain() -> MethodBuilder:
    """Two products, which nothing fuses."""
    m = MethodBuilder()
    x = m.input(m.tensor([4, 4]), "x")
    first, second = m.tensor([4, 4]), m.output(m.tensor([4, 4]))
    m.call("aten::mm.out", [x, x, first, first])
    m.call("aten::mm.out", [first, x, second, second])
    return m


def test_steps_begin_and_end_with_their_instructions() -> None:
    runtime = pteron.Runtime(disabled_rules=["all"])
    method = pteron.load(build(_chain()), runtime=runtime).load_method()
    recorder = Recorder()
    x = np.eye(4, dtype=np.float32)
    (out,) = method.execute([x], tracer=recorder)
    np.testing.assert_array_equal(out, x)
    order = [(event[0], event[1].index) for event in recorder.events if event[0].startswith("step")]
    assert order == [("step_begin", 0), ("step_end", 0), ("step_begin", 1), ("step_end", 1)]
    steps = [event[0] for event in recorder.of("step_begin")]
    assert [s.instructions for s in steps] == [[0], [1]]
    assert all(s.method == "forward" and s.name and s.handles == [] for s in steps)
    assert [error for _, error in recorder.of("step_end")] == [None, None]
    with pytest.raises(AttributeError):
        steps[0].index = 3


def test_values_are_copies_of_what_each_step_wrote() -> None:
    method = pteron.load(build(_chain()), runtime=pteron.Runtime(disabled_rules=["all"])).load_method()
    recorder = Recorder()
    x = np.random.default_rng(0).integers(0, 9, (4, 4)).astype(np.float32)
    method.execute([x], tracer=recorder)
    values = [value for _, _, value in recorder.of("value")]
    method.execute([x + 1])
    np.testing.assert_array_equal(values[0], x @ x)
    np.testing.assert_array_equal(values[-1], x @ x @ x)


def test_without_a_method_called_value_no_value_is_copied() -> None:
    class StepsOnly:
        count = 0

        def step_end(self, step: Any, error: str | None) -> None:
            self.count += 1

    method = pteron.load(build(add_method())).load_method()
    tracer = StepsOnly()
    method.execute([X, X], tracer=tracer)
    method.execute([X, X])
    assert tracer.count == 1
    method.execute([X, X], tracer=object())


def test_allocations_of_inputs_and_outputs() -> None:
    m = MethodBuilder()
    x = m.input(m.tensor([2, 3], planned=False), "x")
    m.add(x, x, m.output(m.tensor([2, 3])))
    method = pteron.load(build(m)).load_method()
    strided = np.ones((2, 6), np.float32)[:, ::2]
    told = []
    for given, options in [(X, {}), (strided, {}), (strided, {}), (X, {"outputs": [np.empty_like(X)]})]:
        recorder = Recorder()
        method.execute([given], tracer=recorder, **options)
        told.append([(what, index) for what, index, nbytes in recorder.of("allocation") if nbytes >= 24])
    # The copy of a strided input keeps its memory.
    assert told == [[("output", 0)], [("input", 0), ("output", 0)], [("output", 0)], []]


class Traced:
    """Adds, and reports two parts of itself."""

    num_outputs = 1

    def execute(self, ctx: Any, inputs: Any, outputs: Any) -> None:
        self.was_traced = ctx.is_traced
        start = time.perf_counter_ns()
        np.asarray(outputs[0])[...] = np.asarray(inputs[0]) + np.asarray(inputs[1])
        ctx.event("sum", start, time.perf_counter_ns(), b"more")
        ctx.event(7, 1, 2)
        with pytest.raises(TypeError, match="int or a str"):
            ctx.event(1.5, 1, 2)


class TracedBackend:
    def __init__(self) -> None:
        self.delegate = Traced()

    def init(self, ctx: Any, processed: memoryview, specs: Any) -> Traced:
        return self.delegate


def test_delegates_report_events_with_int_and_str_ids() -> None:
    runtime, backend = pteron.Runtime(), TracedBackend()
    pteron.register_backend("Traced", backend, runtime=runtime)
    method = pteron.load(build(delegate_method("Traced")), runtime=runtime).load_method()
    recorder = Recorder()
    method.execute([X, X], tracer=recorder)
    assert backend.delegate.was_traced
    names = [event[0] for event in recorder.events if "delegate" in event[0]]
    assert names == ["delegate_begin", "delegate_event", "delegate_event", "delegate_end"]
    first, second = recorder.of("delegate_event")
    step, backend_name, name, start, end, metadata = first
    assert (step.name, backend_name, name, metadata) == ("Traced", "Traced", "sum", b"more")
    assert 0 < start <= end
    assert second[2:] == (7, 1, 2, b"")
    method(X, X)
    assert not backend.delegate.was_traced


def test_a_failing_step_ends_with_its_error() -> None:
    class Fails(Traced):
        def execute(self, ctx: Any, inputs: Any, outputs: Any) -> None:
            raise ValueError("no such luck")

    runtime, backend = pteron.Runtime(), TracedBackend()
    backend.delegate = Fails()
    pteron.register_backend("Traced", backend, runtime=runtime)
    method = pteron.load(build(delegate_method("Traced")), runtime=runtime).load_method()
    recorder = Recorder()
    with pytest.raises(pteron.DelegateError, match="no such luck"):
        method.execute([X, X], tracer=recorder)
    assert "no such luck" in recorder.of("delegate_end")[0][2]
    assert "no such luck" in recorder.of("step_end")[-1][1]


def test_what_a_tracer_raises_stops_the_run_and_comes_out() -> None:
    class Enough(Exception):
        pass

    class Stops:
        def __init__(self) -> None:
            self.count = 0

        def step_begin(self, step: Any) -> None:
            self.count += 1
            if self.count == 100:
                raise Enough

    method = pteron.load(build(endless_method())).load_method()
    tracer = Stops()
    with pytest.raises(Enough):
        method.execute([X, X], tracer=tracer)
    assert tracer.count == 100
    with pytest.raises(pteron.LimitExceeded):
        method.execute([X, X], budget=100)


def test_a_tracer_that_calls_the_method_back_is_refused() -> None:
    method = pteron.load(build(add_method())).load_method()

    class Again:
        def step_begin(self, step: Any) -> None:
            method(X, X)

    with pytest.raises(pteron.MethodBusy):
        method.execute([X, X], tracer=Again())
    np.testing.assert_array_equal(method(X, X), 2 * X)
