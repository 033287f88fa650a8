"""Says what a long lowering is doing.

Silent for two seconds. Then each step is one line: to the log `pteron.exir.progress` where that takes INFO,
otherwise to standard error where that is a terminal. `PTERON_PROGRESS=1` writes the lines to standard error
in any case and from the start, `PTERON_PROGRESS=0` never.
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

_log = logging.getLogger(__name__)


class _Lines:
    """The steps of one lowering, shown once it has taken long enough."""

    def __init__(self, what: str, delay: float, forced: bool) -> None:
        self._what = what
        self._forced = forced
        self._started = time.monotonic()
        self._step = ""
        self._shown = delay <= 0
        self._lock = threading.Lock()
        self._timer = threading.Timer(delay, self._show_from_now)
        self._timer.daemon = True
        if not self._shown:
            self._timer.start()

    def enter(self, step: str) -> None:
        with self._lock:
            self._step = step
            if self._shown:
                self._write(step)

    def close(self, last: str) -> None:
        self._timer.cancel()
        with self._lock:
            if self._shown:
                self._write(last)
            self._step = ""

    def _show_from_now(self) -> None:
        with self._lock:
            if not self._shown:
                self._shown = True
                if self._step:
                    self._write(self._step)

    def _write(self, step: str) -> None:
        line = f"{self._what}: {time.monotonic() - self._started:6.1f} s  {step}"
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
