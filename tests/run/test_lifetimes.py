"""Whatever is dropped first, forked, or alive when the interpreter ends: in processes of their own."""

from __future__ import annotations

import os
import textwrap

import pytest

from tests.support.own_interpreter import output_of

PREPARED = """
    import gc, os, random, sys, threading, weakref
    import numpy as np, pteron
    from tests.support.programs import (
        add_method, announced_endless_method, build, counter_method, delegate_method, endless_method
    )
    X = np.arange(6, dtype=np.float32).reshape(2, 3)

    class Delegate:
        num_outputs = 1
        def __init__(self):
            self.calls = np.zeros(1, np.int64)
        def execute(self, ctx, inputs, outputs):
            self.calls += 1
            np.asarray(outputs[0])[...] = np.asarray(inputs[0]) + np.asarray(inputs[1])
        def destroy(self):
            destroyed.append(1)

    class Backend:
        def init(self, ctx, processed, specs):
            made.append(1)
            return Delegate()

    made, destroyed = [], []
    runtime = pteron.Runtime(num_threads=2)
    pteron.register_backend("Delegate", Backend(), runtime=runtime)
    data = build(delegate_method("Delegate"))

    # Threads say that they are where the test wants them; the test waits for that many of their turns.
    turns = threading.Semaphore(0)
    def wait_for(count):
        for _ in range(count):
            assert turns.acquire(timeout=60)

    zeros = os.open("/dev/zero", os.O_RDONLY)
    def without_the_interpreter():
        turns.release()
        os.read(zeros, 1 << 20)

    class Announcer(Delegate):
        def execute(self, ctx, inputs, outputs):
            turns.release()
    class AnnouncingBackend:
        def init(self, ctx, processed, specs):
            return Announcer()
    pteron.register_backend("Announcer", AnnouncingBackend(), runtime=runtime)
    endless = build(announced_endless_method("Announcer"))
"""


def _run(code: str, *arguments: str) -> str:
    """Runs `code` after what is prepared for all."""
    return output_of(textwrap.dedent(PREPARED) + textwrap.dedent(code), *arguments)


@pytest.mark.parametrize("seed", range(3))
def test_objects_go_in_any_order(seed: int) -> None:
    out = _run(
        """
    rng = random.Random(int(sys.argv[1]))
    def objects():
        own = pteron.Runtime(num_threads=2)
        pteron.register_backend("Delegate", Backend(), runtime=own)
        program = pteron.load(data, runtime=own)
        method = program.load_method()
        (owned,) = method.execute([X, X])
        (lent,) = program.load_method().execute([X, X], copy=False)
        blob = program.named_data["pteron.interface"]
        kept = {
            "runtime": own, "program": program, "method": method, "owned": owned, "lent": lent,
            "view": np.asarray(lent)[1], "dlpack": np.from_dlpack(lent), "memory": memoryview(lent),
            "cancel": method.cancel, "spec": program.inputs("forward"), "blob": blob,
        }
        return kept, bytes(blob)
    for _ in range(60):
        kept, text = objects()
        names = list(kept)
        rng.shuffle(names)
        for name in names:
            if rng.random() < 0.2:
                thread = threading.Thread(target=kept.pop, args=(name,))
                thread.start()
                thread.join()
            else:
                del kept[name]
            noise = [np.full((2, 3), i, np.float32) for i in range(20)]
            for other, value in kept.items():
                if other in ("owned", "dlpack", "memory"):
                    np.testing.assert_array_equal(np.asarray(value), 2 * X)
                elif other == "view":
                    np.testing.assert_array_equal(value, 2 * X[1])
                elif other == "lent":
                    np.testing.assert_array_equal(np.asarray(value), 2 * X)
                elif other == "method":
                    np.testing.assert_array_equal(value(X, X + 1), 2 * X + 1)
                elif other == "program":
                    np.testing.assert_array_equal(value.run("forward", X, X), 2 * X)
                elif other == "blob":
                    assert bytes(value) == text
                elif other == "cancel":
                    value()
        del value, noise
    gc.collect()
    print(len(made), len(made) - len(destroyed))
    """,
        str(seed),
    )
    sessions, alive = map(int, out.split())
    assert sessions >= 120
    assert alive == 0


# What is alive when the interpreter ends; each has to let it end.
AT_THE_END = {
    "sessions": """
    program = pteron.load(data, runtime=runtime)
    method = program.load_method()
    (lent,) = method.execute([X, X], copy=False)
    view, capsule = np.asarray(lent), np.from_dlpack(lent)
    program.run("forward", X, X)
    cycle = [method, program]
    cycle.append(cycle)
    """,
    "an endless run": """
    method = pteron.load(endless, runtime=runtime).load_method()
    threading.Thread(target=method, args=(X, X), daemon=True).start()
    wait_for(1)
    """,
    "threads that call": """
    program = pteron.load(build(add_method()))
    def work():
        method = program.load_method()
        while True:
            method(X, X)
            program.run("forward", X, X)
            turns.release()
    for _ in range(4):
        threading.Thread(target=work, daemon=True).start()
    wait_for(100)
    """,
    "threads that load": """
    def work():
        while True:
            pteron.load(data, runtime=runtime).load_method()(X, X)
            turns.release()
    for _ in range(3):
        threading.Thread(target=work, daemon=True).start()
    wait_for(100)
    """,
    "threads inside delegates": """
    Delegate.execute = lambda self, ctx, inputs, outputs: without_the_interpreter()
    program = pteron.load(data, runtime=runtime)
    def work():
        method = program.load_method()
        while True:
            method(X, X)
    for _ in range(4):
        threading.Thread(target=work, daemon=True).start()
    wait_for(100)
    """,
    "threads inside init": """
    Backend.init = lambda self, *_: without_the_interpreter() or Delegate()
    def work():
        while True:
            pteron.load(data, runtime=runtime).load_method()
    for _ in range(3):
        threading.Thread(target=work, daemon=True).start()
    wait_for(100)
    """,
    "threads inside tracers": """
    class Tracer:
        def step_begin(self, step):
            without_the_interpreter()
    program = pteron.load(build(add_method()))
    def work():
        while True:
            program.execute("forward", [X, X], tracer=Tracer())
    for _ in range(3):
        threading.Thread(target=work, daemon=True).start()
    wait_for(100)
    """,
    "a deadline far away": """
    method = pteron.load(endless, runtime=runtime).load_method()
    def work():
        method.execute([X, X], deadline=3600)
    threading.Thread(target=work, daemon=True).start()
    wait_for(1)
    """,
    "a thread that the end waits for": """
    method = pteron.load(endless, runtime=runtime).load_method()
    def work():
        try:
            method(X, X)
        except pteron.Cancelled:
            os.write(1, b"cancelled ")
    thread = threading.Thread(target=work)
    thread.start()
    def stop():
        wait_for(1)
        method.cancel()
    threading.Thread(target=stop).start()
    """,
    "calls from atexit and from destructors": """
    import atexit
    method = pteron.load(data, runtime=runtime).load_method()
    atexit.register(lambda: np.testing.assert_array_equal(method(X, X), 2 * X))
    class Late:
        def __init__(self):
            self.method = method
        def __del__(self):
            try:
                self.method(X, X)
            except BaseException:
                pass
    late = Late()
    """,
}


@pytest.mark.parametrize("what", AT_THE_END)
def test_the_interpreter_ends_whatever_is_alive(what: str) -> None:
    out = _run(AT_THE_END[what] + '\n    os.write(1, b"end")\n')
    assert "end" in out


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_beside_running_threads_leaves_both_sides_working() -> None:
    out = _run(
        """
    import signal
    program = pteron.load(data, runtime=runtime)
    endless = pteron.load(build(endless_method()))
    is_ending = threading.Event()
    def work():
        while not is_ending.is_set():
            program.run("forward", X, X)
            turns.release()
            try:
                endless.execute("forward", [X, X], deadline=0.0005)
            except pteron.DeadlineExceeded:
                pass
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    expected = program.load_method()(X, X).tobytes()
    BUSY, codes = 3, []
    for attempt in range(15):
        wait_for(attempt)  # another moment of the threads' runs each time
        child = os.fork()
        if child == 0:
            signal.alarm(60)  # ends a child that hangs
            code = 1
            try:
                assert program.run("forward", X, X).tobytes() == expected
                assert program.load_method()(X, X).tobytes() == expected
                try:
                    endless.execute("forward", [X, X], deadline=0.01)
                except pteron.DeadlineExceeded:
                    code = 0
            except pteron.MethodBusy:
                code = BUSY  # the pool of sessions was growing at the fork: documented, and it ends at once
            finally:
                os._exit(code)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    is_ending.set()
    for thread in threads:
        thread.join()
    assert program.run("forward", X, X).tobytes() == expected
    assert set(codes) <= {0, BUSY} and codes.count(0) >= 8, codes
    print("done")
    """
    )
    assert out == "done\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_delegate_that_forks_in_a_run_with_a_deadline() -> None:
    """The child's deadline is watched by nobody there; its run ends and so does the child."""
    out = _run(
        """
    import signal
    children = []
    def execute(self, ctx, inputs, outputs):
        np.asarray(outputs[0])[...] = np.asarray(inputs[0])
        children.append(os.fork())
        if children[-1] == 0:
            signal.alarm(60)
    Delegate.execute = execute
    method = pteron.load(data, runtime=runtime).load_method()
    for _ in range(5):
        (got,) = method.execute([X, X], deadline=30)
        is_same = got.tobytes() == X.tobytes()
        if children[-1] == 0:
            os._exit(0 if is_same else 1)
        assert is_same
        assert os.waitstatus_to_exitcode(os.waitpid(children[-1], 0)[1]) == 0
    print("done")
    """
    )
    assert out == "done\n"
