"""What a long command says on a terminal while it works: what is done, elapsed and expected time."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

#: Nothing is shown before, and nothing more often, in seconds.
SILENT_SECONDS, EVERY_SECONDS = 1.0, 0.5


class Progress:
    """A line that is written over; nothing at all where standard error is no terminal."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._start = time.monotonic()
        self._text: tuple[str, float | None, float] | None = None
        self._has_line = False
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        if sys.stderr is not None and sys.stderr.isatty():
            self._thread = threading.Thread(target=self._keep, daemon=True)
            self._thread.start()

    def show(self, text: str, share: float | None = None) -> None:
        """What is being done; `share` of the whole that is done now, where it is known."""
        self._text = text, share, time.monotonic()

    def close(self) -> None:
        """Takes the line away."""
        self._end.set()
        if self._thread is not None:
            self._thread.join()
        if self._has_line:
            self._write("")
            print("\r", end="", file=sys.stderr, flush=True)

    def _keep(self) -> None:
        wait = SILENT_SECONDS
        while not self._end.wait(wait):
            wait = EVERY_SECONDS
            if self._text is not None:
                self._has_line = True
                self._write(self._line(*self._text))

    def _line(self, text: str, share: float | None, noted: float) -> str:
        now = time.monotonic()
        line = f"{self._what}: {text}, {_seconds(now - self._start)}"
        if share is not None and 0 < share <= 1:
            left = (noted - self._start) * (1 / share - 1) - (now - noted)
            line += f", about {_seconds(max(0.0, left))} left"
        return line

    def _write(self, line: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        print(f"\r{line[:width].ljust(width)}", end="", file=sys.stderr, flush=True)


@contextmanager
def progress(what: str) -> Iterator[Progress]:
    """The progress of a command, taken away at its end."""
    shown = Progress(what)
    try:
        yield shown
    finally:
        shown.close()


def _seconds(count: float) -> str:
    minutes, seconds = divmod(round(count), 60)
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
