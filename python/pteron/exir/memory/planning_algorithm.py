"""What a planning algorithm is, and the check of what it returns."""

from __future__ import annotations

import bisect
import inspect
from collections.abc import Callable, Sequence

from pteron.errors import ExportError
from pteron.exir.memory.lifetime import Lifetime

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
