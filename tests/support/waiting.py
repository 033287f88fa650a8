"""Waiting for what another thread does: for the event itself, and never longer than until a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

DEADLINE = 60.0
"""Seconds after which what has not come counts as a failure; far more than a busy machine needs."""


def until(is_so: Callable[[], object], what: str) -> None:
    """Returns when a condition holds that nobody announces; fails at the deadline."""
    end = time.monotonic() + DEADLINE
    pause = threading.Event()
    while not is_so():
        assert time.monotonic() < end, f"{what} did not come within {DEADLINE:g} s"
        pause.wait(0.001)
