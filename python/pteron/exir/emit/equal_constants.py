"""Finds constants that hold the same values, without reading more of them than that takes."""

from __future__ import annotations

from typing import Any

import numpy as np

# Constants that differ do so in their first or last bytes nearly always.
_SAMPLE = 256
# Of two long constants this many bytes are compared at once.
_PART = 1 << 20


class EqualConstants:
    """Constants by index. Two are equal where type, shape, strides and all bytes are."""

    def __init__(self) -> None:
        self._known: dict[Any, list[tuple[memoryview, int]]] = {}

    def find(self, kind: Any, data: memoryview) -> int | None:
        """The index of a constant of this kind with these bytes; None where there is none."""
        for known, index in self._known.get(_key(kind, data), ()):
            if _same_bytes(known, data):
                return index
        return None

    def add(self, kind: Any, data: memoryview, index: int) -> None:
        """State that the constant `index` has these bytes, which are not copied."""
        self._known.setdefault(_key(kind, data), []).append((data, index))


def _key(kind: Any, data: memoryview) -> Any:
    return kind, len(data), bytes(data[:_SAMPLE]), bytes(data[-_SAMPLE:])


def _same_bytes(left: memoryview, right: memoryview) -> bool:
    """Whether two texts of one length are equal; the first part that differs ends the search."""
    for start in range(0, len(left), _PART):
        one, other = (np.frombuffer(each[start : start + _PART], np.uint8) for each in (left, right))
        if not np.array_equal(one, other):
            return False
    return True
