"""When memory of tensors is in use, which are in use together, and how much every plan needs at least."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass


def align_up(value: int, alignment: int) -> int:
    """The smallest multiple of `alignment` that is not below `value`; both in bytes."""
    return -(-value // alignment) * alignment


@dataclass(frozen=True)
class Lifetime:
    """`nbytes` of memory, in use from instruction `first` to instruction `last`, both included."""

    nbytes: int
    first: int
    last: int

    def overlaps(self, other: Lifetime) -> bool:
        """Whether the two are in use at the same instruction; for planning algorithms of users."""
        return self.first <= other.last and other.first <= self.last


def neighbours(lifetimes: Sequence[Lifetime]) -> list[list[int]]:
    """For each tensor the indices of the others that are in use at a common instruction.

    Tensors of 0 bytes have no neighbours. Time is linear in the number of pairs found, beside a sort.
    """
    found: list[list[int]] = [[] for _ in lifetimes]
    occupied = [index for index, lifetime in enumerate(lifetimes) if lifetime.nbytes > 0]
    in_use: list[tuple[int, int]] = []  # a heap of (last, index)
    for index in sorted(occupied, key=lambda i: (lifetimes[i].first, i)):
        lifetime = lifetimes[index]
        while in_use and in_use[0][0] < lifetime.first:
            heapq.heappop(in_use)
        for _, other in in_use:
            found[index].append(other)
            found[other].append(index)
        heapq.heappush(in_use, (lifetime.last, index))
    return found


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
