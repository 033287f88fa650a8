"""The pool of threads that kernels share: how many, for whom, asleep when idle, alive after a fork."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import pteron
from tests.support.own_interpreter import output_of
from tests.support.programs import MethodBuilder, build

ROWS, DEPTH, COLUMNS = 192, 320, 576


def product_method() -> tuple[MethodBuilder, np.ndarray]:
    """`relu(x @ w)`, large enough for several chunks, and its weight."""
    weight = np.random.default_rng(0).random((DEPTH, COLUMNS), dtype=np.float32) - 0.5
    m = MethodBuilder()
    x = m.input(m.tensor([ROWS, DEPTH]), "x")
    w = m.constant(weight)
    product = m.tensor([ROWS, COLUMNS])
    out = m.output(m.tensor([ROWS, COLUMNS]))
    m.call("aten::mm.out", [x, w, product, product])
    m.call("aten::relu.out", [product, out, out])
    return m, weight


@pytest.fixture(scope="module")
def given() -> np.ndarray:
    return np.random.default_rng(1).random((ROWS, DEPTH), dtype=np.float32) - 0.5


@pytest.fixture(scope="module")
def method() -> pteron.Method:
    return pteron.load(build(product_method()[0]), runtime=pteron.Runtime(num_threads=4)).load_method()


def test_every_number_of_threads_of_a_call_gives_the_same_bytes(
    method: pteron.Method, given: np.ndarray
) -> None:
    expected = np.maximum(given @ product_method()[1], 0)
    results = {method.execute([given], num_threads=n)[0].tobytes() for n in (1, 2, 3, 4, 99, None)}
    assert len(results) == 1
    got = np.frombuffer(results.pop(), np.float32).reshape(ROWS, COLUMNS)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_a_call_on_no_threads_is_refused(method: pteron.Method, given: np.ndarray) -> None:
    with pytest.raises(pteron.InputError, match=r"num_threads.*at least 1"):
        method.execute([given], num_threads=0)
    with pytest.raises(pteron.InputTypeError, match="num_threads"):
        method.execute([given], num_threads="2")  # type: ignore[arg-type]


def test_sessions_that_share_a_busy_pool_give_the_same_bytes(given: np.ndarray) -> None:
    program = pteron.load(build(product_method()[0]), runtime=pteron.Runtime(num_threads=3))
    expected = program.load_method(num_threads=1).execute([given])[0].tobytes()

    def work(_: int) -> bool:
        method = program.load_method()
        return all(method.execute([given])[0].tobytes() == expected for _ in range(30))

    with ThreadPoolExecutor(6) as callers:
        assert all(callers.map(work, range(6)))


PREPARED = """
    import os, threading, time
    import numpy as np, pteron
    from tests.support.programs import build
    from tests.run.test_threads import DEPTH, ROWS, product_method
    program = pteron.load(build(product_method()[0]), runtime=pteron.Runtime(num_threads=3))
    method = program.load_method()
    x = np.ones((ROWS, DEPTH), np.float32)
    expected = method(x).tobytes()
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads the states of threads from /proc")
def test_idle_threads_sleep() -> None:
    # A thread that spun would never be asleep, and would use the processor while the first thread does.
    spent = output_of(
        PREPARED
        + """
    from tests.support.waiting import until
    def others_sleep():
        others = [t for t in os.listdir("/proc/self/task") if int(t) != threading.get_native_id()]
        lines = [open(f"/proc/self/task/{t}/stat").read() for t in others]
        return len(others) >= 2 and all(line.rpartition(")")[2].split()[0] == "S" for line in lines)
    until(others_sleep, "sleep")
    mine, all_threads = time.thread_time(), time.process_time()
    while time.thread_time() - mine < 0.3:
        pass
    print((time.process_time() - all_threads) - (time.thread_time() - mine))
    """
    )
    assert float(spent) < 0.1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_computes_and_the_parent_goes_on() -> None:
    out = output_of(
        PREPARED
        + """
    for _ in range(5):
        child = os.fork()
        if child == 0:
            fresh = pteron.load(build(product_method()[0])).load_method()
            is_same = method(x).tobytes() == expected and fresh(x).tobytes() == expected
            os._exit(0 if is_same else 1)
        assert method(x).tobytes() == expected
        assert os.waitpid(child, 0)[1] == 0
    print("done")
    """
    )
    assert out == "done\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_session_that_ran_at_the_fork_is_refused_in_the_child_and_others_work() -> None:
    out = output_of(
        PREPARED
        + """
    other = program.load_method()
    is_ending = False
    turn = threading.Event()
    def work():
        while not is_ending:
            turn.set()
            method(x)  # lets go of the interpreter while it runs
    thread = threading.Thread(target=work)
    thread.start()
    refused, forks = 0, 0
    give_up = time.monotonic() + 60
    # A busy machine may let this thread go on only after the call it waited for.
    while forks < 20 or not refused and time.monotonic() < give_up:
        forks += 1
        turn.clear()
        assert turn.wait(60)
        child = os.fork()
        if child == 0:
            try:
                code = 0 if method(x).tobytes() == expected else 1
            except pteron.MethodBusy:
                code = 7
            is_same = other(x).tobytes() == expected
            os._exit(code if is_same else 1)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, 7), code
        refused += code == 7
    is_ending = True
    thread.join()
    print(refused > 0)
    """
    )
    assert out == "True\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_program_that_was_being_built_at_the_fork_is_refused_in_the_child() -> None:
    """The parent's thread holds locks which nobody in the child will ever give back."""
    out = output_of(
        PREPARED
        + """
    import signal
    from tests.support.programs import MethodBuilder
    m = MethodBuilder()
    value = m.input(m.tensor([1, 1024]), "x")
    for seed in range(16):
        weight = m.constant(np.full((1024, 1024), seed, np.float32))
        result = m.output(m.tensor([1, 1024])) if seed == 15 else m.tensor([1, 1024])
        m.call("aten::mm.out", [value, weight, result, result])
        value = result
    data = build(m)
    refused = 0
    for attempt in range(40):
        large = pteron.load(data)
        built = []
        has_begun = threading.Event()
        def work():
            has_begun.set()
            built.append(large.load_method())
        thread = threading.Thread(target=work)
        thread.start()
        assert has_begun.wait(60)
        for _ in range(attempt % 8):  # other steps of the building
            method(x)
        child = os.fork()
        if child == 0:
            signal.alarm(60)  # ends a child that hangs
            try:
                large.load_method()
                code = 0
            except pteron.MethodBusy as error:
                code = 7 if "at the fork" in str(error) else 1
            is_same = program.load_method()(x).tobytes() == expected
            os._exit(code if is_same else 1)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, 7), code
        thread.join()
        assert len(built) == 1
        refused += code == 7
        if refused == 3:
            break
    print(refused > 0)
    """
    )
    assert out == "True\n"
