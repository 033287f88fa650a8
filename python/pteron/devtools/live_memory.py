"""How much of planned memory holds values that are still read, step by step."""

from __future__ import annotations

from collections.abc import Sequence

from pteron.devtools.description import MethodDescription
from pteron.devtools.lifetimes import Lifetime, flow_of, step_accesses


def live_bytes(plan: MethodDescription) -> list[int]:
    """For each step of a plan, the bytes of planned memory with values that this or a later step uses, at the
    largest shapes. Inputs live from the start, outputs to the end, state always; what a round of a loop
    leaves to the next, through the loop.
    """
    accesses = step_accesses(plan)
    return covered_bytes(flow_of(plan, accesses).lifetimes, len(accesses))


def covered_bytes(lifetimes: Sequence[Lifetime], count: int) -> list[int]:
    """For each of `count` steps the bytes of arenas that some lifetime covers then, each byte once."""
    total = [0] * count
    for arena in sorted({one.tensor.arena for one in lifetimes if one.tensor.arena is not None}):
        members = [one for one in lifetimes if one.tensor.arena == arena and one.tensor.nbytes]
        for at, nbytes in enumerate(_covered(members, count)):
            total[at] += nbytes
    return total


def _covered(lifetimes: Sequence[Lifetime], count: int) -> list[int]:
    ranges = [(one.tensor.offset or 0, (one.tensor.offset or 0) + one.tensor.nbytes) for one in lifetimes]
    borders = sorted({border for pair in ranges for border in pair})
    place = {border: at for at, border in enumerate(borders)}
    begins: list[list[int]] = [[] for _ in range(count + 1)]
    ends: list[list[int]] = [[] for _ in range(count + 1)]
    for at, one in enumerate(lifetimes):
        begins[one.first].append(at)
        ends[min(one.last, count - 1) + 1].append(at)
    tree = _Cover(borders)
    out = []
    for node in range(count):
        for lifetime in begins[node]:
            tree.add(place[ranges[lifetime][0]], place[ranges[lifetime][1]], 1)
        for lifetime in ends[node]:
            tree.add(place[ranges[lifetime][0]], place[ranges[lifetime][1]], -1)
        out.append(tree.length[1])
    return out


class _Cover:
    """A tree of segments between borders: the length that one range at least covers."""

    def __init__(self, borders: Sequence[int]) -> None:
        self._borders = borders
        self._size = max(len(borders) - 1, 1)
        self._times = [0] * (4 * self._size)
        self.length = [0] * (4 * self._size)

    def add(self, start: int, end: int, times: int) -> None:
        self._add(1, 0, self._size, start, end, times)

    def _add(self, at: int, low: int, high: int, start: int, end: int, times: int) -> None:
        if end <= low or high <= start:
            return
        if start <= low and high <= end:
            self._times[at] += times
        else:
            middle = (low + high) // 2
            self._add(2 * at, low, middle, start, end, times)
            self._add(2 * at + 1, middle, high, start, end, times)
        if self._times[at]:
            self.length[at] = self._borders[high] - self._borders[low]
        elif high - low == 1:
            self.length[at] = 0
        else:
            self.length[at] = self.length[2 * at] + self.length[2 * at + 1]
