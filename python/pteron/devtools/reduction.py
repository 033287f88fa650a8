"""The smallest part of a method that still fails a check."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def reduce_units(
    count: int,
    fails: Callable[[tuple[int, ...]], bool],
    left: Callable[[int], None] = lambda _: None,
) -> tuple[int, ...]:
    """Units of `range(count)` that fail, of which none can be left out: by halves from the end, from the
    start, then in ever smaller pieces from anywhere. `fails` says whether a part fails; it is asked of no
    part twice. Before each question `left` is told how many there are at most, with this one.

    Raises:
        ValueError: the whole does not fail.
    """
    known: dict[tuple[int, ...], bool] = {}

    def ask(part: Sequence[int]) -> bool:
        key = tuple(part)
        if key not in known:
            known[key] = bool(key) and fails(key)
        return known[key]

    found = list(range(count))
    left(1 + 2 * count.bit_length() + _pieces(count, max(1, count // 2)))
    if not ask(found):
        raise ValueError("the program does not fail the check")
    found = _shorter(found, ask, left, from_end=True)
    found = _shorter(found, ask, left, from_end=False)
    size = max(1, len(found) // 2)
    while True:
        at, shrank = 0, False
        while at < len(found):
            left(_pieces(len(found), size) - at // size)
            less = found[:at] + found[at + size :]
            if ask(less):
                found, shrank = less, True
            else:
                at += size
        if size > 1:
            size //= 2
        elif not shrank:
            return tuple(found)


def _pieces(count: int, size: int) -> int:
    """Questions about so many units: in pieces of this size and of all smaller ones."""
    asked = 0
    while True:
        asked += -(-count // size)
        if size == 1:
            return asked
        size //= 2


def _shorter(
    found: list[int],
    ask: Callable[[Sequence[int]], bool],
    left: Callable[[int], None],
    *,
    from_end: bool,
) -> list[int]:
    """As few of the first (or last) units as fail, by bisection."""
    good, bad = 0, len(found)
    while bad - good > 1:
        middle = (good + bad) // 2
        after = bad.bit_length() if from_end else 0
        left((bad - good).bit_length() + after + _pieces(bad, max(1, bad // 2)))
        if ask(found[:middle] if from_end else found[len(found) - middle :]):
            bad = middle
        else:
            good = middle
    return found[:bad] if from_end else found[len(found) - bad :]
