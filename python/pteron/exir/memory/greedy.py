"""The default planning algorithm: largest first, each at the lowest offset that is free."""

from __future__ import annotations

from collections.abc import Sequence

from pteron.exir.memory.align_up import align_up
from pteron.exir.memory.lifetime import Lifetime


def greedy(lifetimes: Sequence[Lifetime], alignment: int) -> tuple[list[int], int]:
    """(offset in bytes of each tensor, size in bytes of the memory).

    Two tensors whose lifetimes overlap never share a byte. Tensors are placed from the largest to the
    smallest (ties: earlier first), each into the lowest gap between those placed before that are alive
    together with it. Offsets are multiples of `alignment`. Time is quadratic in the number of tensors.
    """
    offsets = [0] * len(lifetimes)
    placed: list[tuple[int, int, Lifetime]] = []  # (start, end, lifetime), sorted by start
    order = sorted(range(len(lifetimes)), key=lambda i: (-lifetimes[i].nbytes, lifetimes[i].first, i))
    total = 0
    for index in order:
        lifetime = lifetimes[index]
        size = align_up(lifetime.nbytes, alignment)
        if size == 0:
            continue
        offset = 0
        for start, end, other in placed:
            if not lifetime.overlaps(other):
                continue
            if start - offset >= size:
                break
            offset = max(offset, end)
        offsets[index] = offset
        position = next((i for i, (start, _, _) in enumerate(placed) if start > offset), len(placed))
        placed.insert(position, (offset, offset + size, lifetime))
        total = max(total, offset + size)
    return offsets, total
