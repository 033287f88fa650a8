"""Says what a long lowering is doing, and how long it is expected to take.

Silent for two seconds. Then each step is one line, with the time until now and, once a part of the work is
done, the time that the whole is expected to take; a step that takes long is written again every ten seconds.
Lines go to the log `pteron.exir.progress` where that takes INFO, otherwise to standard error where that is a
terminal. `PTERON_PROGRESS=1` writes them to standard error in any case and from the start,
`PTERON_PROGRESS=0` never.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

VARIABLE = "PTERON_PROGRESS"
SILENT_SECONDS = 2.0
EVERY_SECONDS = 10.0
#: From this share of the work on, the time of the whole is expected in proportion.
_LEAST_SHARE = 0.02

_log = logging.getLogger(__name__)


class Work:
    """How much of the whole is done: parts within parts, each a share of the one around it."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._done, self._seconds = 0.0, 0.0
        self._start, self._width = 0.0, 1.0

    @contextmanager
    def part(self, share: float) -> Iterator[None]:
        """What is done inside is so much of what is done around it."""
        outer = self._start, self._width
        # Work that was not foreseen takes nothing from what comes behind it.
        self._start, self._width = self._done, min(self._width * share, sum(outer) - self._done)
        try:
            yield
        finally:
            self.reach(1.0)
            self._start, self._width = outer

    def reach(self, share: float) -> None:
        """So much of the innermost part is done."""
        done = self._start + self._width * share
        if done > self._done:
            self._done, self._seconds = done, time.monotonic() - self._started

    def expected(self) -> float | None:
        """The seconds of the whole if the rest goes on as what is done; None where too little is done.

        A part that takes longer than that is taken to be at its end.
        """
        if not _LEAST_SHARE <= self._done < 1.0:
            return None
        until_now = time.monotonic() - self._started
        return max(self._seconds / self._done, until_now / (self._start + self._width))


class _Lines:
    """The steps of one lowering, shown once it has taken long enough."""

    def __init__(self, what: str, delay: float, forced: bool) -> None:
        self._what = what
        self._forced = forced
        self._started = self._written = time.monotonic()
        self._step = ""
        self._shown = delay <= 0
        self._lock = threading.Lock()
        self._end = threading.Event()
        self.work = Work()
        first = EVERY_SECONDS if self._shown else delay
        threading.Thread(target=self._keep, args=(first,), daemon=True).start()

    def enter(self, step: str) -> None:
        with self._lock:
            self._step = step
            if self._shown:
                self._write(step)

    def close(self, last: str) -> None:
        self._end.set()
        with self._lock:
            if self._shown:
                self._write(last, is_last=True)
            self._step = ""

    def _keep(self, delay: float) -> None:
        """Writes the step that runs when lines are due."""
        while not self._end.wait(delay):
            with self._lock:
                now = time.monotonic()
                is_due = not self._shown or now - self._written >= EVERY_SECONDS
                self._shown = True
                if is_due and self._step:
                    self._write(self._step)
                delay = EVERY_SECONDS - (now - self._written) if self._step else EVERY_SECONDS

    def _write(self, step: str, *, is_last: bool = False) -> None:
        self._written = time.monotonic()
        expected = None if is_last else self.work.expected()
        of = "" if expected is None else f" of about {expected:.0f} s"
        line = f"{self._what}: {self._written - self._started:6.1f} s{of}  {step}"
        if self._forced:
            print(line, file=sys.stderr, flush=True)
        elif _log.isEnabledFor(logging.INFO):
            _log.info(line)
        elif sys.stderr is not None and sys.stderr.isatty():
            print(line, file=sys.stderr, flush=True)


_active: ContextVar[_Lines | None] = ContextVar("pteron_progress", default=None)


@contextmanager
def progress_of(what: str) -> Iterator[None]:
    """Show the steps that are entered inside, if it takes long; `what` starts each line.

    Inside another `progress_of` the steps belong to the outer one.
    """
    switch = os.environ.get(VARIABLE)
    if switch == "0" or _active.get() is not None:
        yield
        return
    forced = switch == "1"
    lines = _Lines(what, 0.0 if forced else SILENT_SECONDS, forced)
    token = _active.set(lines)
    last = "stopped"
    try:
        yield
        last = "finished"
    finally:
        _active.reset(token)
        lines.close(last)


def step(text: str) -> None:
    """State what comes next; nothing happens outside `progress_of`."""
    lines = _active.get()
    if lines is not None:
        lines.enter(text)


@contextmanager
def part(share: float) -> Iterator[None]:
    """What is done inside is so much of what is done around it: of the innermost `part`, or of all."""
    lines = _active.get()
    if lines is None:
        yield
        return
    with lines.work.part(share):
        yield


def reach(share: float) -> None:
    """So much of the innermost `part` is done."""
    lines = _active.get()
    if lines is not None:
        lines.work.reach(share)
