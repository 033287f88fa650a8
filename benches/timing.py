"""What the benchmarks of models and operators share: the processor's name, the median time of a call."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path


def cpu_model() -> str:
    """Name of the processor, as the system states it."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()


def median_ms(call: Callable[[], object], seconds: float) -> float:
    """Median time of a call in milliseconds, over at least five of them, after two that do not count."""
    for _ in range(2):
        call()
    times = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)
