"""When a tensor's memory is in use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Lifetime:
    """`nbytes` of memory, in use from instruction `first` to instruction `last`, both included."""

    nbytes: int
    first: int
    last: int

    def overlaps(self, other: Lifetime) -> bool:
        """Whether the two are in use at the same instruction."""
        return self.first <= other.last and other.first <= self.last
