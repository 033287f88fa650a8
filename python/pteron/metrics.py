"""What predictors and asynchronous calls of this process did, and the memory that it takes, for who collects
metrics.

    pteron.metrics.text()          # Prometheus' text format, for an endpoint
    pteron.metrics.counters()      # the same numbers
    pteron.metrics.memory()
    pteron.metrics.count_runs()    # from now on runs of programs and sessions are counted, too

The logger "pteron" of `logging` says when programs are loaded (INFO), calls end (DEBUG) and calls are
refused, stopped or fail (WARNING). It has a NullHandler: nothing is printed unless the application configures
logging.
"""

from __future__ import annotations

import functools
import os
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pteron import _native
from pteron.errors import Cancelled, DeadlineExceeded, InputError, LimitExceeded, MethodBusy

if TYPE_CHECKING:
    from logging import Logger

__all__ = ["CallCounts", "Counters", "ProcessMemory", "count_runs", "counters", "logger", "memory", "text"]


@dataclass(frozen=True)
class Counters:
    """Sums since a predictor was loaded in this process, or since the first asynchronous call of a method.

    Attributes:
        calls: that ended, well or not.
        batches: runs of the method.
        rows: of calls that succeeded.
        padded_rows: rows that batches were filled up with.
        seconds: of all calls, waiting for a session included.
        refused: calls with inputs that do not fit, beyond a limit, or of a method that was busy.
        stopped: calls that were cancelled or reached their deadline.
        failed: calls that ended in any other error.
    """

    calls: int = 0
    batches: int = 0
    rows: int = 0
    padded_rows: int = 0
    seconds: float = 0.0
    refused: int = 0
    stopped: int = 0
    failed: int = 0


class CallCounts:
    """Counters that calls add to, from any thread."""

    def __init__(self, label: str) -> None:
        self.label = label
        self._lock = threading.Lock()
        self._sums: dict[str, float] = dict.fromkeys(Counters.__dataclass_fields__, 0)
        _ALL.add(self)

    def read(self) -> Counters:
        """The sums now."""
        with self._lock:
            return Counters(**self._sums)  # type: ignore[arg-type]

    def counted(self, work: Callable[[], Any], added: Callable[[], dict[str, int]]) -> Any:
        """What `work` gives; its time, its error and what `added` says behind it are counted and logged."""
        begun = time.perf_counter()
        try:
            result = work()
        except BaseException as raised:
            self.ended(time.perf_counter() - begun, raised, added())
            raise
        self.ended(time.perf_counter() - begun, None, added())
        return result

    def ended(self, seconds: float, error: BaseException | None, added: dict[str, int]) -> None:
        """Counts and logs a call that has ended; `error` is what it raised."""
        outcome = "" if error is None else _outcome(error)
        sums = {"calls": 1, "seconds": seconds, **({outcome: 1} if outcome else {}), **added}
        with self._lock:
            for name, value in sums.items():
                self._sums[name] += value
        said = f"{outcome}: {error}" if outcome else "done"
        log = logger().warning if outcome else logger().debug
        log("%s: %s (%.3f ms)", self.label, said, seconds * 1000)


# Those of objects that live; what is gone is not counted any more.
_ALL: weakref.WeakSet[CallCounts] = weakref.WeakSet()
# Of runs, by label, once `count_runs` has asked for them.
_RUNS: dict[str, CallCounts] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ALL.clear)  # the parent counts its calls itself
    os.register_at_fork(after_in_child=_RUNS.clear)


def count_runs(enabled: bool = True) -> None:
    """Whether every run of a method is counted and logged as "file, method, runs": those of `program.run` and
    `program.execute`, of sessions, and those that predictors and asynchronous calls make.

    Off until it is called: a run then looks at one flag; while it is on, a call of Python follows each run.
    """
    _native.observe_runs(_count_run if enabled else None)


def _count_run(label: str, seconds: float, error: BaseException | None) -> None:
    counts = _RUNS.get(label) or _RUNS.setdefault(label, CallCounts(label))
    counts.ended(seconds, error, {"batches": 1})


def _outcome(error: BaseException) -> str:
    if isinstance(error, (Cancelled, DeadlineExceeded)):
        return "stopped"
    return "refused" if isinstance(error, (InputError, LimitExceeded, MethodBusy)) else "failed"


@functools.cache
def logger() -> Logger:
    """The logger "pteron", imported when something is first said."""
    import logging

    found = logging.getLogger("pteron")
    found.addHandler(logging.NullHandler())
    return found


def counters() -> dict[str, Counters]:
    """Counters by "file, method": of all predictors and asynchronous calls of a program together; and by
    "file, method, runs" where `count_runs` asked for them.
    """
    found: dict[str, Counters] = {}
    for counts in list(_ALL):
        before, now = asdict(found.get(counts.label, Counters())), asdict(counts.read())
        found[counts.label] = Counters(**{name: before[name] + now[name] for name in now})
    return dict(sorted(found.items()))


@dataclass(frozen=True)
class ProcessMemory:
    """Bytes of memory of this process.

    Attributes:
        resident: in memory now, pages that are shared with other processes included.
        proportional: the same, each shared page divided by the number of processes that have it; None where
            the operating system does not say.
        private: in no other process; None where the operating system does not say.
    """

    resident: int
    proportional: int | None
    private: int | None


def memory() -> ProcessMemory | None:
    """The memory of this process as Linux tells it; None on other systems."""
    found = _kilobytes(Path("/proc/self/smaps_rollup"))
    if "Rss" in found:
        private = found.get("Private_Clean", 0) + found.get("Private_Dirty", 0)
        return ProcessMemory(found["Rss"] * 1024, found["Pss"] * 1024, private * 1024)
    found = _kilobytes(Path("/proc/self/status"))
    return ProcessMemory(found["VmRSS"] * 1024, None, None) if "VmRSS" in found else None


def _kilobytes(file: Path) -> dict[str, int]:
    """The lines "name: number kB" of a file of /proc; none where the file cannot be read."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.split() for line in lines if line.endswith(" kB"))
    return {name.rstrip(":"): int(number) for name, number, _ in pairs}


_HELP = {
    "calls": "Calls that ended.",
    "batches": "Runs of the method.",
    "rows": "Rows of calls that succeeded.",
    "padded_rows": "Rows that batches were filled up with.",
    "seconds": "Seconds of all calls.",
    "refused": "Calls that were refused.",
    "stopped": "Calls that were cancelled or reached their deadline.",
    "failed": "Calls that ended in another error.",
}


def text() -> str:
    """Counters and memory in Prometheus' text format, `pteron_calls_total{model="..."} 1` and so on."""
    found = counters()
    lines = []
    for name, says in _HELP.items():
        lines += [f"# HELP pteron_{name}_total {says}", f"# TYPE pteron_{name}_total counter"]
        for label, values in found.items():
            shown = label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            lines.append(f'pteron_{name}_total{{model="{shown}"}} {getattr(values, name)}')
    known = memory()
    for kind, value in asdict(known).items() if known is not None else ():
        if value is not None:
            lines += [f"# TYPE pteron_process_{kind}_bytes gauge", f"pteron_process_{kind}_bytes {value}"]
    return "\n".join(lines) + "\n"
