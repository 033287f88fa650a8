"""The default planning algorithm: many orders of placement, the best plan of all."""

from __future__ import annotations

import random
from collections.abc import Sequence

from pteron.exir.memory.align_up import align_up
from pteron.exir.memory.greedy import by_size
from pteron.exir.memory.lifetime import Lifetime
from pteron.exir.memory.lower_bound import lower_bound
from pteron.exir.memory.neighbours import neighbours
from pteron.exir.memory.placement import place_in_order

# What one search may spend, counted in looks at a neighbour so that the plan does not depend on the
# machine: about a quarter of a second.
_MOST_LOOKS = 1_000_000
_MOST_ROUNDS = 400
# Rounds without a better plan before the search goes back to the order of the best one.
_PATIENCE = 12


def search(lifetimes: Sequence[Lifetime], alignment: int) -> tuple[list[int], int]:
    """(offset in bytes of each tensor, size in bytes of the memory).

    Never needs more than `greedy`. Tensors are placed in several fixed orders, then in orders in which
    those that ended above the lower bound move forward, until a plan meets the lower bound or the effort is
    spent. The result depends on the arguments alone.
    """
    sizes = [align_up(lifetime.nbytes, alignment) for lifetime in lifetimes]
    beside = neighbours(lifetimes)
    bound = lower_bound(lifetimes, alignment)
    looks = sum(map(len, beside)) + len(sizes)
    best: tuple[int, list[int], list[int]] | None = None  # total, offsets, order
    for order in _fixed_orders(lifetimes):
        offsets, total = place_in_order(order, sizes, beside)
        if best is None or total < best[0]:
            best = (total, offsets, order)
        if total <= bound:
            break
    assert best is not None
    if best[0] > bound:
        rounds = min(_MOST_ROUNDS, _MOST_LOOKS // looks)
        best = _move_forward(best, sizes, beside, bound, rounds)
    return best[1], best[0]


def _fixed_orders(lifetimes: Sequence[Lifetime]) -> list[list[int]]:
    def duration(index: int) -> int:
        return lifetimes[index].last - lifetimes[index].first + 1

    indices = range(len(lifetimes))
    return [
        by_size(lifetimes),
        sorted(indices, key=lambda i: (-lifetimes[i].nbytes * duration(i), lifetimes[i].first, i)),
        sorted(indices, key=lambda i: (-duration(i), -lifetimes[i].nbytes, i)),
        sorted(indices, key=lambda i: (lifetimes[i].first, -lifetimes[i].nbytes, i)),
        sorted(indices, key=lambda i: (-lifetimes[i].last, -lifetimes[i].nbytes, i)),
    ]


def _move_forward(
    best: tuple[int, list[int], list[int]],
    sizes: Sequence[int],
    beside: Sequence[Sequence[int]],
    bound: int,
    rounds: int,
) -> tuple[int, list[int], list[int]]:
    """Let the tensors that stand out choose their place earlier, over and over."""
    chance = random.Random(0)
    order, offsets = best[2], best[1]
    waited = 0
    for _ in range(rounds):
        above = {index for index in order if sizes[index] and offsets[index] + sizes[index] > bound}
        order = _with_moved(order, above, chance)
        offsets, total = place_in_order(order, sizes, beside)
        waited += 1
        if total < best[0]:
            best, waited = (total, offsets, order), 0
            if total <= bound:
                break
        elif waited >= _PATIENCE:
            order, offsets, waited = best[2], best[1], 0
    return best


def _with_moved(order: Sequence[int], above: set[int], chance: random.Random) -> list[int]:
    """`order` with the tensors in `above` somewhere before the place that they had."""
    keys = {
        index: (chance.randrange(position + 1) if index in above else position, index not in above)
        for position, index in enumerate(order)
    }
    return sorted(order, key=keys.__getitem__)
