"""Predictors in worker processes: every way to start them, a parent that loads before it forks, SIGTERM."""

from __future__ import annotations

import multiprocessing
import os
import textwrap
from pathlib import Path

import pytest

from tests.support.own_interpreter import output_of
from tests.support.programs import build, dynamic_add_method

IN_A_POOL = """
    import multiprocessing, sys
    import numpy as np
    import pteron

    def inputs(count):
        x = np.arange(count * 3, dtype=np.float32).reshape(count, 3)
        return {"x": x, "y": x}

    if __name__ == "__main__":
        start, file, is_called = sys.argv[1:]
        predictor = pteron.Predictor(file, buckets=(2, 8), num_threads=1)
        if is_called == "called":
            predictor(inputs(1))
        counts = [1, 5, 8, 9, 30] * 4
        with multiprocessing.get_context(start).Pool(2) as pool:
            results = pool.map(predictor, map(inputs, counts), chunksize=1)
        is_right = [(r["output0"] == 2 * inputs(n)["x"]).all() for r, n in zip(results, counts)]
        print(len(results) == 20 and all(is_right))
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "add.pte"
    path.write_bytes(build(dynamic_add_method()))
    return path


@pytest.mark.parametrize("called", ["called", "new"])
@pytest.mark.parametrize("start", ["spawn", "forkserver", "fork"])
def test_a_predictor_is_what_a_pool_maps(file: Path, tmp_path: Path, start: str, called: str) -> None:
    if start not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {start} here")
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(IN_A_POOL))
    run = f"""
    import runpy, sys
    sys.argv = [{str(script)!r}, {start!r}, {str(file)!r}, {called!r}]
    runpy.run_path({str(script)!r}, run_name="__main__")
    """
    assert output_of(run) == "True\n"


LOADED = """
    import asyncio, os, signal, sys, threading, time
    import numpy as np, pteron
    from pteron import program_cache
    from tests.support.programs import build, dynamic_add_method, endless_method
    x = np.arange(15, dtype=np.float32).reshape(5, 3)
    predictor = pteron.Predictor(sys.argv[1]).load()

    def is_right(predictor=predictor):
        return bool((predictor({"x": x, "y": x})["output0"] == x + x).all())

    assert is_right()

    def in_child(work):
        child = os.fork()
        if child == 0:
            signal.alarm(60)  # ends a child that hangs
            try:
                code = 0 if work() else 1
            finally:
                os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


@needs_fork
def test_forked_workers_have_what_the_parent_loaded(file: Path) -> None:
    code = """
    program = predictor._loaded.program

    def work():
        before = predictor.counters()
        return is_right() and predictor._loaded.program is program and predictor.counters().calls == 1 \\
            and before.calls == 0 and pteron.metrics.counters()["add.pte, forward"].calls == 1

    print([in_child(work) for _ in range(4)], predictor.counters().calls)
    """
    assert output_of(LOADED + code, file) == "[0, 0, 0, 0] 1\n"


@needs_fork
def test_locks_that_were_held_at_the_fork_do_not_stop_the_child(file: Path) -> None:
    code = """
    loaded, has, go_on = predictor._loaded, threading.Event(), threading.Event()

    def hold():
        with program_cache.loading(), loaded.counts._lock:
            has.set()
            go_on.wait(60)

    for _ in range(os.cpu_count() + 8):
        loaded._gate.acquire(timeout=0)  # every place for a call is taken
    thread = threading.Thread(target=hold)
    thread.start()
    assert has.wait(60)
    fresh = pteron.Predictor(sys.argv[1])
    print(in_child(lambda: is_right() and is_right(fresh)))
    go_on.set()
    thread.join()
    """
    assert output_of(LOADED + code, file) == "0\n"


@needs_fork
def test_asynchronous_calls_go_on_in_a_child(file: Path) -> None:
    code = """
    program = pteron.load(sys.argv[1])

    def work():
        return bool((asyncio.run(program.run_async("forward", x, x)) == x + x).all())

    assert work()
    print([in_child(work) for _ in range(3)], work())
    """
    assert output_of(LOADED + code, file) == "[0, 0, 0] True\n"


@needs_fork
def test_preloaded_workers_serve_and_end_at_once_when_told_to(file: Path) -> None:
    """As gunicorn with `preload_app`: load, fork, serve, SIGTERM. One worker is in the middle of a run."""
    code = """
    endless = pteron.Predictor(build(endless_method()), batched=()).load()
    two = np.ones((2, 3), np.float32)

    def serve(is_busy, ready):
        assert is_right()
        os.write(ready, b"r")
        if is_busy:
            endless({"x": two, "y": two})
        while True:
            assert is_right()

    workers = []
    for is_busy in (True, False, False):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            try:
                serve(is_busy, writing)
            finally:
                os._exit(1)
        os.close(writing)
        workers.append((child, reading))
    for _, reading in workers:
        assert os.read(reading, 1) == b"r"
    time.sleep(0.2)
    begun = time.monotonic()
    for child, _ in workers:
        os.kill(child, signal.SIGTERM)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child, _ in workers]
    print(codes == [-signal.SIGTERM] * 3, time.monotonic() - begun < 10, is_right())
    """
    assert output_of(LOADED + code, file) == "True True True\n"
