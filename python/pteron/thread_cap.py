"""How many threads a call uses where its caller does not say, and how many processors there are for calls."""

from __future__ import annotations

import os

from pteron.errors import InputError

__all__ = ["processors", "threads_of_environment"]


def processors() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_of_environment() -> int | None:
    """`PTERON_NUM_THREADS`, else `OMP_NUM_THREADS`, which engines set for their workers; None where neither
    says.

    Of a list, as OpenMP takes it ("4,2"), the first number counts. An `OMP_NUM_THREADS` that is no number is
    none of ours, and says nothing.

    Raises:
        InputError: `PTERON_NUM_THREADS` is not a number of at least 1.
    """
    given = os.environ.get("PTERON_NUM_THREADS", "").strip()
    if given:
        if not given.isdecimal() or int(given) < 1:
            raise InputError(
                "PTERON_NUM_THREADS is no number of threads",
                argument="PTERON_NUM_THREADS",
                expected="an integer of at least 1",
                got=given,
                hint="unset it to use all processors of the process",
            )
        return int(given)
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) >= 1 else None
