"""Runs stop inside one long kernel, on Ctrl-C, `cancel`, a deadline; and the method can be used again."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

import pteron
from tests.support.programs import MethodBuilder, build

pytestmark = pytest.mark.alone


@pytest.fixture(scope="module", params=[1, 2])
def long_convolution(request: pytest.FixtureRequest) -> tuple[pteron.Method, np.ndarray]:
    """One convolution that takes seconds."""
    channels, size = 512, 256
    rng = np.random.default_rng(0)
    m = MethodBuilder()
    x = m.input(m.tensor([1, channels, size, size]), "x")
    w = m.constant(rng.random((channels, channels, 3, 3), dtype=np.float32))
    out = m.output(m.tensor([1, channels, size, size]))
    ones, zeros = m.int_list([1, 1]), m.int_list([0, 0])
    arguments = [x, w, m.none(), ones, m.int_list([1, 1]), ones, m.bool(False), zeros, m.int(1), out, out]
    m.call("aten::convolution.out", arguments)
    runtime = pteron.Runtime(num_threads=request.param)
    given = rng.random((1, channels, size, size), dtype=np.float32)
    return pteron.load(build(m), runtime=runtime).load_method(), given


def _stopped_after(run: Callable[[], object], error: type[BaseException], trigger: list[float]) -> float:
    with pytest.raises(error):
        run()
    return time.perf_counter() - trigger[0]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")
def test_control_c_inside_one_kernel(long_convolution: tuple[pteron.Method, np.ndarray]) -> None:
    method, given = long_convolution
    fired: list[float] = []

    def handler(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, handler)
    try:
        for _ in range(2):
            fired[:] = [time.perf_counter() + 0.15]
            signal.setitimer(signal.ITIMER_REAL, 0.15)
            late = _stopped_after(lambda: method(given), KeyboardInterrupt, fired)
            # The promise is 0.2 s on an idle machine; tests run on busy ones.
            assert late < 1.5
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_deadline_inside_one_kernel(long_convolution: tuple[pteron.Method, np.ndarray]) -> None:
    method, given = long_convolution
    fired = [time.perf_counter() + 0.1]
    late = _stopped_after(lambda: method.execute([given], deadline=0.1), pteron.DeadlineExceeded, fired)
    assert late < 1.0


def test_cancel_inside_one_kernel(long_convolution: tuple[pteron.Method, np.ndarray]) -> None:
    method, given = long_convolution
    fired: list[float] = []

    def cancel() -> None:
        fired.append(time.perf_counter())
        method.cancel()

    timer = threading.Timer(0.1, cancel)
    timer.start()
    late = _stopped_after(lambda: method(given), pteron.Cancelled, fired)
    timer.join()
    assert late < 1.0


def test_a_stopped_method_computes_the_same_as_before() -> None:
    rng = np.random.default_rng(1)
    m = MethodBuilder()
    x = m.input(m.tensor([600, 600]), "x")
    product, out = m.tensor([600, 600]), m.output(m.tensor([600, 600]))
    m.call("aten::mm.out", [x, x, product, product])
    m.call("aten::mm.out", [product, x, out, out])
    method = pteron.load(build(m)).load_method()
    given = rng.random((600, 600), dtype=np.float32)
    expected = method(given).tobytes()
    stopped = 0
    for i in range(40):
        try:
            got = method.execute([given], deadline=i * 1e-4)[0].tobytes()
        except pteron.DeadlineExceeded:
            stopped += 1
        else:
            assert got == expected
        assert method(given).tobytes() == expected
    assert stopped > 0
