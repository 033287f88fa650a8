"""Which tensors are in use together."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from pteron.exir.memory.lifetime import Lifetime


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
