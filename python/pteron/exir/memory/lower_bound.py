"""How much memory every plan needs at least."""

from __future__ import annotations

from collections.abc import Sequence

from pteron.exir.memory.align_up import align_up
from pteron.exir.memory.lifetime import Lifetime


def peak(lifetimes: Sequence[Lifetime], alignment: int) -> tuple[int, int]:
    """(bytes in use at the instruction that needs most, that instruction); the first one of several.

    Each tensor counts with its size rounded up to `alignment`. (0, 0) without tensors.
    """
    changes: dict[int, int] = {}
    for lifetime in lifetimes:
        size = align_up(lifetime.nbytes, alignment)
        changes[lifetime.first] = changes.get(lifetime.first, 0) + size
        changes[lifetime.last + 1] = changes.get(lifetime.last + 1, 0) - size
    largest, where, live = 0, 0, 0
    for position in sorted(changes):
        live += changes[position]
        if live > largest:
            largest, where = live, position
    return largest, where


def lower_bound(lifetimes: Sequence[Lifetime], alignment: int) -> int:
    """Bytes below which no plan can stay: the largest sum of sizes in use at one instruction."""
    return peak(lifetimes, alignment)[0]
