"""A planning algorithm that shares nothing: for debugging, since every tensor keeps its last value."""

from __future__ import annotations

from collections.abc import Sequence

from pteron.exir.memory.align_up import align_up
from pteron.exir.memory.lifetime import Lifetime


def naive(lifetimes: Sequence[Lifetime], alignment: int) -> tuple[list[int], int]:
    """(offset in bytes of each tensor, size in bytes of the memory); tensors lie one behind the other."""
    offsets, end = [], 0
    for lifetime in lifetimes:
        offsets.append(end)
        end += align_up(lifetime.nbytes, alignment)
    return offsets, end
