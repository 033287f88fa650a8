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


def median_times(call: Callable[[], object], seconds: float) -> tuple[float, float]:
    """Medians of a call in milliseconds, on the wall and of the processors, over at least five of them, after
    two that do not count."""
    for _ in range(2):
        call()
    walls, processors = [], []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(walls) < 5:
        # The processor's clock is a call of the system: outside of what the wall's clock counts.
        processor = time.process_time()
        wall = time.perf_counter()
        call()
        walls.append((time.perf_counter() - wall) * 1e3)
        processors.append((time.process_time() - processor) * 1e3)
    return statistics.median(walls), statistics.median(processors)


def median_ms(call: Callable[[], object], seconds: float) -> float:
    """Median time of a call in milliseconds, as `median_times` takes it."""
    return median_times(call, seconds)[0]
