"""Calls that reduce bags of a table's rows."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tests.ops.operator_case import OperatorCase as Case
from tests.ops.sample_tensors import FLOATS, values

ODD_OFFSETS = ([1, 2], [0, 9], [0, 3, 1], [0, -1])


def refused(*_: object) -> torch.Tensor:
    """Stands for eager PyTorch where offsets fall, or the last does not end the indices.

    What it makes of them depends on mode, padding and processor.
    """
    raise RuntimeError("an index would be in two bags, or a bag would end elsewhere")


def every_bag() -> Iterator[Case]:
    """Sums, means and maxima of bags."""
    indices, offsets = torch.tensor([0, 2, 2, 5, 1, 2]), torch.tensor([0, 2, 2, 4])
    for dtype in FLOATS:
        weight = values((6, 5), dtype)
        for mode in [0, 1, 2]:
            yield Case("_embedding_bag", "out", (weight, indices, offsets, False, mode))
            yield Case(
                "_embedding_bag", "out", (weight, indices, offsets, False, mode, False, None, False, 2)
            )
            closed = torch.tensor([0, 2, 2, 6])
            yield Case("_embedding_bag", "out", (weight, indices, closed, False, mode, False, None, True))
        factors = values((6,), dtype, 3)
        yield Case("_embedding_bag", "out", (weight, indices, offsets, False, 0, False, factors))
    weight = values((6, 5))
    for mode in [0, 1, 2]:
        forward = "_embedding_bag_forward_only"
        yield Case(forward, "out", (weight, indices, offsets, False, mode), outputs=1)
        for closed in ([0, 2, 2, 6], [0, 2, 2, 4], [0, 6]):
            given = (weight, indices, torch.tensor(closed), False, mode, False, None, True)
            function = refused if closed[-1] != 6 else None
            yield Case(forward, "out", given, outputs=1, note=f" closed by {closed[-1]}", function=function)
        yield Case("_embedding_bag", "out", (weight, indices.int(), offsets.int(), False, mode))
        yield Case("_embedding_bag", "out", (values((5, 6)).t(), indices, offsets, False, mode))
        yield Case("_embedding_bag", "out", (weight, indices[:0], torch.tensor([0, 0]), False, mode))
        for odd in ODD_OFFSETS:
            given = (weight, indices, torch.tensor(odd), False, mode)
            function = refused if odd == [0, 3, 1] else None
            yield Case("_embedding_bag", "out", given, note=f" offsets {odd}", function=function)
        yield Case("_embedding_bag", "out", (weight, indices + 4, offsets, False, mode), note=" outside")
        yield Case("_embedding_bag", "out", (weight, indices - 1, offsets, False, mode), note=" negative")
    yield Case("_embedding_bag", "out", (weight, indices, offsets, False, 3))
    yield Case("_embedding_bag", "out", (weight, indices, offsets, False, 1, False, values((6,))))
    yield Case("_embedding_bag", "out", (weight, indices, offsets, False, 0, False, values((5,))))
