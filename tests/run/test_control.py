"""Sessions: state, threads, stopping, signals."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest

import pteron
from tests.support.own_interpreter import output_of
from tests.support.programs import (
    MethodBuilder,
    add_method,
    announced_endless_method,
    build,
    counter_method,
    endless_method,
)
from tests.support.waiting import DEADLINE

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_state_lives_in_the_session() -> None:
    program = pteron.load(build(counter_method()))
    one, two = program.load_method(), program.load_method()
    step = np.array([1, 2], np.float32)
    np.testing.assert_array_equal(one(step), [11, 22])
    np.testing.assert_array_equal(one(step), [12, 24])
    np.testing.assert_array_equal(two(step), [11, 22])
    np.testing.assert_array_equal(one.get_state()["total"], [12, 24])


def test_state_can_be_read_set_and_reset() -> None:
    method = pteron.load(build(counter_method())).load_method()
    step = np.array([1, 2], np.float32)
    state = method.get_state()
    assert list(state) == ["total"]
    np.testing.assert_array_equal(state["total"], [10, 20])
    method(step)
    state["total"][...] = 0
    np.testing.assert_array_equal(method(step), [12, 24])
    method.set_state({"total": np.array([100, 200], np.float32)})
    np.testing.assert_array_equal(method(step), [101, 202])
    method.set_state({})
    method.reset_state()
    np.testing.assert_array_equal(method(step), [11, 22])


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ({"nothing": np.zeros(2, np.float32)}, "total"),
        ({"total": np.zeros(3, np.float32)}, "expected float32"),
        ({"total": np.zeros(2, np.float64)}, "float64"),
        ({"total": [1, 2]}, "got list"),
        ({"total": None}, "got NoneType"),
    ],
)
def test_wrong_state_changes_nothing(state: dict[str, object], text: str) -> None:
    method = pteron.load(build(counter_method())).load_method()
    with pytest.raises(pteron.InputError, match=text):
        method.set_state(state)  # type: ignore[arg-type]
    np.testing.assert_array_equal(method.get_state()["total"], [10, 20])


def test_stateful_methods_are_refused_by_run() -> None:
    program = pteron.load(build(counter_method()))
    with pytest.raises(pteron.InputError, match="load_method"):
        program.run("forward", np.zeros(2, np.float32))


def test_run_from_many_threads() -> None:
    program = pteron.load(build(add_method()))

    def work(seed: int) -> bool:
        x = np.random.default_rng(seed).random((2, 3), dtype=np.float32)
        return all(np.array_equal(program.run("forward", x, X), x + X) for _ in range(200))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_own_methods_on_many_threads() -> None:
    program = pteron.load(build(counter_method()))
    one = np.ones(2, np.float32)

    def work(_: int) -> list[float]:
        method = program.load_method()
        for _ in range(99):
            method(one)
        return list(method(one))

    with ThreadPoolExecutor(8) as pool:
        assert set(map(tuple, pool.map(work, range(8)))) == {(110.0, 120.0)}


class _Announcer:
    """A delegate that says that its run has begun."""

    num_outputs = 1

    def __init__(self, has_begun: threading.Event) -> None:
        self.has_begun = has_begun

    def execute(self, ctx: object, inputs: object, outputs: object) -> None:
        self.has_begun.set()


class _Announcing:
    """The backend of it."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()

    def init(self, *_: object) -> _Announcer:
        return _Announcer(self.has_begun)


@dataclass
class _EndlessRun:
    """A method that another thread is running, and what that run ended with."""

    method: pteron.Method
    worker: threading.Thread
    errors: list[BaseException]

    @staticmethod
    def begun() -> _EndlessRun:
        backend, runtime = _Announcing(), pteron.Runtime()
        pteron.register_backend("Announcer", backend, runtime=runtime)
        program = pteron.load(build(announced_endless_method("Announcer")), runtime=runtime)
        errors: list[BaseException] = []
        run = _EndlessRun(program.load_method(), threading.Thread(), errors)
        run.worker = threading.Thread(target=run.work)
        run.worker.start()
        assert backend.has_begun.wait(DEADLINE)
        return run

    def work(self) -> None:
        try:
            self.method(X, X)
        except pteron.PteronError as error:
            self.errors.append(error)

    def cancel(self) -> None:
        self.method.cancel()
        self.worker.join(DEADLINE)
        assert not self.worker.is_alive()


def test_a_running_method_is_busy_and_can_be_cancelled() -> None:
    run = _EndlessRun.begun()
    with pytest.raises(pteron.MethodBusy, match=r"running already.*program\.run"):
        run.method(X, X)
    run.cancel()
    assert [type(error) for error in run.errors] == [pteron.Cancelled]
    with pytest.raises(pteron.LimitExceeded):
        run.method.execute([X, X], budget=100)


def test_python_runs_while_a_method_runs() -> None:
    run = _EndlessRun.begun()
    asked, answered = threading.Semaphore(0), threading.Semaphore(0)

    def answer() -> None:
        for _ in range(50):
            assert asked.acquire(timeout=DEADLINE)
            answered.release()

    helper = threading.Thread(target=answer)
    helper.start()
    for _ in range(50):
        asked.release()
        assert answered.acquire(timeout=DEADLINE)
    helper.join()
    assert run.worker.is_alive()
    run.cancel()


@pytest.fixture
def control_c() -> Iterator[None]:
    """Control-C as an interactive Python has it; a shell may have started this one with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("control_c")
def test_control_c_stops_a_long_run() -> None:
    method = pteron.load(build(endless_method())).load_method()
    timer = threading.Timer(0.2, lambda: signal.raise_signal(signal.SIGINT))
    timer.start()
    start = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        method(X, X)
    assert time.perf_counter() - start < 5
    timer.join()
    with pytest.raises(pteron.LimitExceeded):
        method.execute([X, X], budget=100)


@pytest.mark.usefixtures("control_c")
def test_control_c_stops_a_program_inside_a_delegate() -> None:
    runtime = pteron.Runtime()
    pteron._native.register_demo_backends(runtime)
    inside = endless_method()
    outside = MethodBuilder()
    x, y, out = (outside.tensor([2, 3]) for _ in range(3))
    outside.delegate("ExecutorBackend", [outside.input(x), outside.input(y), out], build(inside))
    outside.output(out)
    method = pteron.load(build(outside), runtime=runtime).load_method()
    timer = threading.Timer(0.2, lambda: signal.raise_signal(signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        method.execute([X, X], deadline=20)
    timer.join()
    with pytest.raises(pteron.LimitExceeded):
        method.execute([X, X], budget=100)


def test_what_a_signal_handler_raises_comes_out() -> None:
    class Alarm(Exception):
        pass

    def handler(*_: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, handler)
    try:
        method = pteron.load(build(endless_method())).load_method()
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(Alarm):
            method(X, X)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_threads_of_a_runtime_of_its_own_give_the_same_bytes() -> None:
    rng = np.random.default_rng(0)
    m = MethodBuilder()
    x = m.input(m.tensor([64, 256]), "x")
    w = m.constant(rng.random((256, 512), dtype=np.float32))
    out = m.output(m.tensor([64, 512]))
    m.call("aten::mm.out", [x, w, out, out])
    data = build(m)
    given = rng.random((64, 256), dtype=np.float32)
    results = [
        pteron.load(data, runtime=pteron.Runtime(num_threads=n)).load_method()(given).tobytes()
        for n in (1, 2, 4)
    ]
    assert len(set(results)) == 1
    expected = given @ np.frombuffer(m.constants[0], np.float32).reshape(256, 512)
    np.testing.assert_allclose(np.frombuffer(results[0], np.float32).reshape(64, 512), expected, rtol=1e-5)


def test_runtimes() -> None:
    portable = pteron.Runtime(isa="portable", disabled_rules=["all"])
    assert portable.isa == "portable"
    np.testing.assert_array_equal(
        pteron.load(build(add_method()), runtime=portable).load_method(num_threads=1)(X, X), X + X
    )
    assert "aten::add.out" in portable.operators
    for bad in ({"isa": "mmx"}, {"num_threads": 0}):
        with pytest.raises(pteron.InputError, match="expected"):
            pteron.Runtime(**bad)


def test_exit_with_a_live_delegate_is_quiet() -> None:
    code = """
    import numpy as np, pteron
    from tests.support.programs import build, delegate_method
    class D:
        num_outputs = 1
        def execute(self, ctx, inputs, outputs):
            outputs[0].numpy()[...] = 1
    class B:
        def init(self, *_):
            return D()
    pteron.register_backend("B", B())
    method = pteron.load(build(delegate_method("B"))).load_method()
    method(np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32))
    kept = method
    """
    assert output_of(code) == ""
