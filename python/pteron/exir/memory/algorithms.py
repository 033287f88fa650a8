"""Planning algorithms: what one is, the check of what it returns, and those that come with the package."""

from __future__ import annotations

import bisect
import inspect
import random
from collections.abc import Callable, Iterable, Sequence

from pteron.errors import ExportError
from pteron.exir.memory.lifetime import Lifetime, align_up, lower_bound, neighbours

PlanningAlgorithm = Callable[[Sequence[Lifetime], int], tuple[list[int], int]]
"""(lifetimes, alignment in bytes) → (offset of each tensor, size of the memory), all in bytes. Pure: it
depends on its arguments alone and changes nothing.
"""


def algorithm_name(algorithm: object) -> str:
    """What an error calls an algorithm."""
    return str(getattr(algorithm, "__name__", None) or type(algorithm).__name__)


def require_algorithm(given: object, where: str) -> PlanningAlgorithm:
    """`given`, if it can be called with (lifetimes, alignment); otherwise `ExportError`, `where` names the
    argument.
    """
    expected = "a function of (lifetimes, alignment) that returns (offsets, total size)"
    if not callable(given):
        raise ExportError(f"{where}: expected {expected}, got {given!r}", expected=expected, got=repr(given))
    try:
        signature = inspect.signature(given)
    except (TypeError, ValueError):
        return given  # written in C: what it takes shows when it is called
    try:
        signature.bind((), 16)
    except TypeError:
        raise ExportError(
            f"{where}: {algorithm_name(given)}{signature} cannot be called with (lifetimes, alignment)",
            expected=expected,
            got=str(signature),
            hint="algorithms of ExecuTorch take specs and a graph; pteron.exir.memory.lifetime.Lifetime is "
            "all that a plan depends on",
        ) from None
    return given


def require_valid_plan(
    algorithm: object, lifetimes: Sequence[Lifetime], alignment: int, offsets: Sequence[int], total: int
) -> None:
    """`ExportError` where a plan is not one: a tensor off the alignment, outside the memory, or on another.

    Time grows with n log n, and with the number of tensors in use at once.
    """
    name = algorithm_name(algorithm)
    if len(offsets) != len(lifetimes):
        raise ExportError(f"{name} returned {len(offsets)} offsets for {len(lifetimes)} tensors")
    for index, (lifetime, offset) in enumerate(zip(lifetimes, offsets, strict=True)):
        if offset < 0 or offset % alignment:
            raise ExportError(
                f"{name} put tensor {index} at offset {offset}, which is no multiple of {alignment}"
            )
        if offset + lifetime.nbytes > total:
            raise ExportError(
                f"{name} put tensor {index} at bytes {offset} to {offset + lifetime.nbytes} of a memory of "
                f"{total} bytes"
            )
    clash = _first_clash(lifetimes, offsets)
    if clash is not None:
        raise ExportError(
            f"{name} put tensors {clash[0]} and {clash[1]} on the same bytes while both are in use: "
            + ", ".join(f"{lifetimes[i]} at offset {offsets[i]}" for i in clash)
        )


def _first_clash(lifetimes: Sequence[Lifetime], offsets: Sequence[int]) -> tuple[int, int] | None:
    """Two tensors that share a byte while both are in use, or None."""
    events: list[tuple[int, int, int]] = []  # (instruction, 0 for an end and 1 for a start, tensor)
    for index, lifetime in enumerate(lifetimes):
        if lifetime.nbytes:
            events += [(lifetime.first, 1, index), (lifetime.last + 1, 0, index)]
    in_use: list[tuple[int, int, int]] = []  # (start, end, tensor), sorted; none of them overlap
    for _, starts, index in sorted(events):
        span = (offsets[index], offsets[index] + lifetimes[index].nbytes, index)
        at = bisect.bisect_left(in_use, span)
        if not starts:
            del in_use[at]
            continue
        if at and in_use[at - 1][1] > span[0]:
            return in_use[at - 1][2], index
        if at < len(in_use) and in_use[at][0] < span[1]:
            return in_use[at][2], index
        in_use.insert(at, span)
    return None


def place_in_order(
    order: Iterable[int], sizes: Sequence[int], neighbours: Sequence[Sequence[int]]
) -> tuple[list[int], int]:
    """(offset of each tensor, end of the highest one), all in bytes.

    Tensors are placed in `order`, each at the lowest offset where it shares no byte with those of its
    neighbours that were placed before. Those that `order` does not name, or whose size is 0, get offset 0.
    Offsets are sums of sizes, so they are aligned where all sizes are.
    """
    spans: list[tuple[int, int] | None] = [None] * len(sizes)
    total = 0
    for index in order:
        size = sizes[index]
        if size == 0:
            continue
        offset = 0
        for start, end in sorted([span for other in neighbours[index] if (span := spans[other])]):
            if start - offset >= size:
                break
            if end > offset:
                offset = end
        spans[index] = (offset, offset + size)
        if offset + size > total:
            total = offset + size
    return [0 if span is None else span[0] for span in spans], total


def naive(lifetimes: Sequence[Lifetime], alignment: int) -> tuple[list[int], int]:
    """(offset in bytes of each tensor, size in bytes of the memory); tensors lie one behind the other."""
    offsets, end = [], 0
    for lifetime in lifetimes:
        offsets.append(end)
        end += align_up(lifetime.nbytes, alignment)
    return offsets, end


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


class MemoryPlanningAlgorithmSuite:
    """Runs every algorithm of a list and takes the plan that needs least memory; of equal ones the first.

    Called like an algorithm: (lifetimes, alignment) → (offsets, total size), in bytes. Raises `ExportError`
    for an empty list and for what cannot be called that way.
    """

    def __init__(self, algo_list: Sequence[PlanningAlgorithm] | None = None) -> None:
        given = [search] if algo_list is None else list(algo_list)
        if not given:
            raise ExportError("MemoryPlanningAlgorithmSuite: the list of algorithms is empty")
        where = "MemoryPlanningAlgorithmSuite(algo_list=...)"
        self.algo_list: list[PlanningAlgorithm] = [require_algorithm(each, where) for each in given]

    def __call__(self, lifetimes: Sequence[Lifetime], alignment: int) -> tuple[list[int], int]:
        return min(
            (algorithm(lifetimes, alignment) for algorithm in self.algo_list), key=lambda plan: plan[1]
        )
