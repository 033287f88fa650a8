"""Round up to a multiple."""

from __future__ import annotations


def align_up(value: int, alignment: int) -> int:
    """The smallest multiple of `alignment` that is not below `value`; both in bytes."""
    return -(-value // alignment) * alignment
