"""What a process may use: processors of its affinity mask and its control group, threads of its environment.

Limits of memory are tested with folders of made-up groups in
`rust/pteron-runtime/src/load/available_memory.rs`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import pteron
from tests.support.own_interpreter import output_of

#: Threads of the pool, of a call that uses them all, and calls of a predictor at once.
THREADS = """
    import os
    for name, value in {environment!r}.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    {first}
    import numpy as np, pteron
    from pteron.thread_cap import processors
    from tests.run.test_threads import DEPTH, ROWS, product_method
    from tests.support.programs import build
    method = pteron.load(build(product_method()[0])).load_method(num_threads={asked})
    for _ in range(20):
        method(np.ones((ROWS, DEPTH), np.float32))
    names = [open(f"/proc/self/task/{{task}}/comm").read() for task in os.listdir("/proc/self/task")]
    helpers = sum(name.startswith("pteron-") for name in names)
    print(pteron.Runtime.shared().num_threads, processors(), 1 + helpers)
"""
NOTHING = {"PTERON_NUM_THREADS": None, "OMP_NUM_THREADS": None}
pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or not Path("/proc/self/task").exists(), reason="needs Linux"
)
several = pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two processors")


def threads(
    first: str = "", environment: dict[str, str | None] = NOTHING, asked: int | None = None
) -> tuple[int, ...]:
    """Threads of the pool, processors of the process, and threads that ran kernels, the caller included."""
    code = THREADS.format(environment=environment, first=first, asked=asked)
    return tuple(map(int, output_of(code).split()))


@several
def test_taskset_bounds_the_pool() -> None:
    one = min(os.sched_getaffinity(0))
    assert threads(f"os.sched_setaffinity(0, {{{one}}})") == (1, 1, 1)
    assert threads(f"os.sched_setaffinity(0, {{{one}}})", asked=8) == (1, 1, 1)


@pytest.mark.parametrize(
    ("ours", "openmp", "cap"),
    [("1", None, 1), (None, "1", 1), ("2", "1", 2), (None, "many", None), ("64", "1", None)],
)
@several
def test_the_environment_bounds_the_pool(ours: str | None, openmp: str | None, cap: int | None) -> None:
    own = len(os.sched_getaffinity(0))
    pool, known, started = threads(environment={"PTERON_NUM_THREADS": ours, "OMP_NUM_THREADS": openmp})
    assert pool == min(cap or own, own)
    assert started <= pool
    assert known >= pool


def test_a_runtime_of_its_own_has_the_threads_that_it_was_made_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTERON_NUM_THREADS", "1")
    assert pteron.Runtime(num_threads=3).num_threads == 3


def test_a_number_of_threads_that_is_none_is_refused_at_the_first_program() -> None:
    code = """
    import os
    os.environ["PTERON_NUM_THREADS"] = "all"
    import pteron
    from tests.support.programs import add_method, build
    try:
        pteron.load(build(add_method()))
    except pteron.InputError as error:
        print("PTERON_NUM_THREADS" in str(error) and "all" in str(error))
    """
    assert output_of(code) == "True\n"


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group with the time of one processor; who joins it is gone when it is taken away."""
    if Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").exists() or Path("/sys/fs/cgroup/cpu/tasks").exists():
        folder, quota = (
            Path("/sys/fs/cgroup/cpu"),
            [("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "100000")],
        )
    else:
        folder, quota = Path("/sys/fs/cgroup"), [("cpu.max", "100000 100000")]
    made = folder / f"pteron-test-{os.getpid()}"
    try:
        made.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        try:
            for name, value in quota:
                (made / name).write_text(value)
        except OSError as error:
            pytest.skip(f"control groups here do not limit processors: {error}")
        yield made
    finally:
        made.rmdir()


@several
def test_the_quota_of_a_control_group_bounds_the_pool(group: Path) -> None:
    joined = f"open({str(group / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))"
    assert threads(joined) == (1, 1, 1)
