"""Units of times in an ETDump and in what is shown of it."""

from __future__ import annotations

from enum import Enum


class TimeScale(Enum):
    """A unit; `CYCLES` has no relation to the others."""

    NS = "ns"
    US = "us"
    MS = "ms"
    S = "s"
    CYCLES = "cycles"


_PER_SECOND = {
    TimeScale.NS: 10**9,
    TimeScale.US: 10**6,
    TimeScale.MS: 10**3,
    TimeScale.S: 1,
    TimeScale.CYCLES: 1,
}


def calculate_time_scale_factor(source_time_scale: TimeScale, target_time_scale: TimeScale) -> float:
    """How many of the source unit are one of the target."""
    return _PER_SECOND[source_time_scale] / _PER_SECOND[target_time_scale]
