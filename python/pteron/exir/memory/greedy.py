"""A planning algorithm: largest first, each at the lowest offset that is free."""

from __future__ import annotations

from collections.abc import Sequence

from pteron.exir.memory.align_up import align_up
from pteron.exir.memory.lifetime import Lifetime
from pteron.exir.memory.neighbours import neighbours
from pteron.exir.memory.placement import place_in_order


def by_size(lifetimes: Sequence[Lifetime]) -> list[int]:
    """Indices from the largest tensor to the smallest; of equal ones the earlier first."""
    return sorted(range(len(lifetimes)), key=lambda i: (-lifetimes[i].nbytes, lifetimes[i].first, i))


def greedy(lifetimes: Sequence[Lifetime], alignment: int) -> tuple[list[int], int]:
    """(offset in bytes of each tensor, size in bytes of the memory).

    Two tensors whose lifetimes overlap never share a byte. Tensors are placed from the largest to the
    smallest, each into the lowest gap between those placed before that are in use together with it. Offsets
    are multiples of `alignment`.
    """
    sizes = [align_up(lifetime.nbytes, alignment) for lifetime in lifetimes]
    return place_in_order(by_size(lifetimes), sizes, neighbours(lifetimes))
