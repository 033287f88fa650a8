"""Shapes and settings at which eager PyTorch begins to refuse: what is empty, what lacks the batch, lists of
the wrong length, dimensions of tensors that have none. The answers must be the same on both sides of the
border.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tests.ops.operator_case import OperatorCase as Case
from tests.ops.sample_tensors import values

_SPATIAL = (4, 5, 6)


def _around(n: int) -> Iterator[torch.Tensor]:
    """Inputs of `n` spatial dimensions, without batch, with an empty dimension, of other ranks."""
    full = (2, 3, *_SPATIAL[:n])
    for shape in [full, full[1:], full[2:], (1, *full)]:
        yield values(shape)
        for d in range(len(shape)):
            yield values((*shape[:d], 0, *shape[d + 1 :]))


def padded() -> Iterator[Case]:
    """Mirrored pads, and constant ones that take away."""
    for n in (1, 2, 3):
        for x in _around(n):
            for operator in [f"reflection_pad{n}d", f"replication_pad{n}d"]:
                for pads in [[1, 0], [-1, 1], [-2, -2]]:
                    yield Case(operator, "out", (x, pads * n))
    for dtype in [torch.float32, torch.int32, torch.complex64]:
        for pads in [[-3, 3], [-4, 4], [3, -4], [-2, -1], [-2, -2], [0, 0, -1, 2]]:
            yield Case("constant_pad_nd", "out", (values((2, 3), dtype), pads, 2))
            yield Case("constant_pad_nd", "out", (values((2, 0), dtype), pads, 2), note=" empty")


def pooled() -> Iterator[Case]:
    """Windows, fixed and adaptive."""
    for n in (1, 2, 3):
        adaptive = "adaptive_avg_pool1d" if n == 1 else f"_adaptive_avg_pool{n}d"
        for x in _around(n):
            yield Case(f"avg_pool{n}d", "out", (x, [2] * n))
            yield Case(f"avg_pool{n}d", "out", (x, [2] * n, [1], [1], True))
            for size in [[1] * n, [2] * n, [0] * n, [2] * (n + 1), [2]]:
                yield Case(adaptive, "out", (x, size))
                if n > 1:
                    yield Case(f"adaptive_max_pool{n}d", "out", (x, size))
            if n > 1:
                yield Case(f"max_pool{n}d_with_indices", "out", (x, [2] * n))


def without_dimensions() -> Iterator[Case]:
    """Dimensions of a tensor that has none, and dimensions named twice."""
    x = values(())
    for dim in (0, -1, 1, -2):
        yield Case("squeeze_copy", "dim_out", (x, dim))
        yield Case("squeeze_copy", "dims_out", (x, [dim]))
        yield Case("unsqueeze_copy", "out", (x, dim))
        yield Case("transpose_copy", "int_out", (x, dim, 0))
        yield Case("permute_copy", "out", (x, [dim]))
        yield Case("select_copy", "int_out", (x, dim, 0))
        yield Case("slice_copy", "Tensor_out", (x, dim))
        yield Case("flip", "out", (x, [dim]))
        yield Case("unfold_copy", "out", (x, dim, 1, 1))
    yield Case("squeeze_copy", "dims_out", (x, [0, -1]))
    yield Case("squeeze_copy", "dims_out", (values((1, 2, 1)), [0, -3]))
    yield Case("squeeze_copy", "dims_out", (values((2, 2)), [1, 1]))
    yield Case("expand_copy", "out", (x, [-1]))
    yield Case("expand_copy", "out", (values((2,)), [-1, 2]))
    yield Case("view_copy", "out", (x, [1, -1]))
    yield Case("view_copy", "out", (values((0, 2)), [-1, 0]))


def convolved() -> Iterator[Case]:
    """Weights without channels."""
    options = ([1, 1], [0, 0], [1, 1])
    x = values((1, 3, 4, 5))
    yield Case("convolution", "out", (x, values((0, 3, 1, 1)), None, *options, False, [0, 0], 1))
    yield Case("convolution", "out", (x, values((3, 0, 2, 2)), None, *options, True, [0, 0], 1))


def multiplied() -> Iterator[Case]:
    """What is added to a product and what is not, since its factor is zero: both have to fit."""
    for dtype in [torch.float32, torch.float64, torch.float16, torch.int32, torch.complex64]:
        a, b = values((3, 2), dtype), values((2, 4), dtype)
        for shape in [(), (1,), (4,), (3, 1), (3, 4), (3,), (2, 4), (1, 3, 4)]:
            for beta in (0, 1):
                added, factor = values(shape, dtype), {"beta": beta}
                yield Case("addmm", "out", (added, a, b), factor, largest=(3, 4))
                pair = a.expand(2, 3, 2), b.expand(2, 2, 4)
                yield Case("baddbmm", "out", (added, *pair), factor, largest=(2, 3, 4))


def smallest() -> Iterator[Case]:
    """Divisors and multiples of the smallest integer, which has no absolute value."""
    for dtype in [torch.int8, torch.int16, torch.int32, torch.int64]:
        low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
        numbers = torch.tensor([low, high, 0, 1, -1, 2, 3, -6, low + 1, high - 1], dtype=dtype)
        # PyTorch traps where it divides the smallest number by minus one.
        a, b = numbers.repeat_interleave(len(numbers)), numbers.repeat(len(numbers))
        yield Case("gcd", "out", (a, b))
        safe = ~((a == low) & (torch.gcd(a, b) == -1))
        yield Case("lcm", "out", (a[safe], b[safe]))


def of_half() -> Iterator[Case]:
    """A softmax that widens is for other devices."""
    for operator in ["_softmax", "_log_softmax"]:
        yield Case(operator, "out", (values((2, 3)), 1, True))


def every_shape_check() -> Iterator[Case]:
    """The whole table."""
    for table in [padded, pooled, without_dimensions, convolved, multiplied, smallest, of_half]:
        yield from table()
