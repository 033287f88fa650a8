"""What a long command says on a terminal while it works: what is done, elapsed and expected time."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

#: Nothing is shown before.
SILENT_SECONDS = 1.0


class Progress:
    """A line that is written over; nothing at all where standard error is no terminal."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._start = time.monotonic()
        self._is_shown = sys.stderr is not None and sys.stderr.isatty()
        self._has_line = False

    def show(self, text: str, share: float | None = None) -> None:
        """What is being done; `share` of the whole that is done, where it is known."""
        elapsed = time.monotonic() - self._start
        if not self._is_shown or elapsed < SILENT_SECONDS:
            return
        line = f"{self._what}: {text}, {_seconds(elapsed)}"
        if share is not None and 0 < share <= 1:
            line += f", {_seconds(elapsed * (1 / share - 1))} left"
        width = shutil.get_terminal_size().columns - 1
        print(f"\r{line[:width].ljust(width)}", end="", file=sys.stderr, flush=True)
        self._has_line = True

    def close(self) -> None:
        """Takes the line away."""
        if self._has_line:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r{' ' * width}\r", end="", file=sys.stderr, flush=True)
            self._has_line = False


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
