"""Time per sentence, measured alike in every process of the demo."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def milliseconds_per_item(call: Callable[[T], object], items: Sequence[T], rounds: int = 30) -> list[float]:
    """For each item the median of ``rounds`` calls, in milliseconds, after three that do not count."""
    result = []
    for item in items:
        for _ in range(3):
            call(item)
        times = []
        for _ in range(rounds):
            start = time.perf_counter()
            call(item)
            times.append((time.perf_counter() - start) * 1e3)
        result.append(statistics.median(times))
    return result
