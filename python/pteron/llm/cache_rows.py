"""Which rows of a cache that several texts share are free.

A text gets rows side by side, in pages of its own while there are any: attention skips pages of other texts.
"""

from __future__ import annotations

from collections.abc import Iterable

#: Rows of a page: two of the groups of keys that attention skips.
PAGE = 32


class CacheRows:
    """The free rows of a cache of `count` rows; at first all."""

    def __init__(self, count: int) -> None:
        self._free = set(range(count))
        self._pages = [range(first, min(first + PAGE, count)) for first in range(0, count, PAGE)]
        self._free_in = [len(page) for page in self._pages]

    def __len__(self) -> int:
        """How many rows are free."""
        return len(self._free)

    def take(self, last: int | None) -> int:
        """The row behind `last`, which the text got before, if that is free and of the same page; else the
        first one of a free page; else the first free one. KeyError where there is none.
        """
        row = -1 if last is None else last + 1
        if row % PAGE == 0 or row not in self._free:
            pages = zip(self._pages, self._free_in, strict=True)
            row = next((page[0] for page, free in pages if free == len(page)), min(self._free, default=-1))
        self._free.remove(row)
        self._free_in[row // PAGE] -= 1
        return row

    def give(self, rows: Iterable[int]) -> None:
        """Rows that are free again."""
        for row in rows:
            self._free.add(row)
            self._free_in[row // PAGE] += 1
