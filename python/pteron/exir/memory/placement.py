"""Place tensors one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


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
