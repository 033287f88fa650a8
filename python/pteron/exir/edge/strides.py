"""Strides from dimension orders, and dimension orders from strides; extents may be symbolic."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cmp_to_key
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import guard_or_false, guard_or_true

Extent = int | torch.SymInt


def contiguous_stride_from_shape(shape: Sequence[Extent]) -> tuple[Extent, ...]:
    """Strides of a contiguous tensor, in elements. An extent of 0 counts as 1, as in PyTorch."""
    return tuple(stride_from_dim_order(shape, range(len(shape))))


def stride_from_dim_order(sizes: Sequence[Extent], dim_order: Sequence[int]) -> list[Extent]:
    """Strides in elements of a tensor whose dimensions lie in memory from outermost to innermost as
    stated.
    """
    strides: list[Extent] = [1] * len(sizes)
    step: Extent = 1
    for dim in reversed(dim_order):
        strides[dim] = step
        size = sizes[dim]
        if not isinstance(size, int) or size != 0:
            step = step * size
    return strides


def dim_order_from_stride(stride: Sequence[Extent]) -> tuple[int, ...]:
    """Dimensions from outermost to innermost: largest stride first, equal ones in their own order.

    Symbolic strides are compared where their divisibility decides.

    Raises:
        RuntimeError: a stride is 0, which no program can store.
        GuardOnDataDependentSymNode: the order depends on the data.
    """
    check: Any = torch._check
    for step in stride:
        check(step != 0, lambda: "0 in strides is not supported for ExecuTorch.")

    def compare(one: int, other: int) -> int:
        return int(_is_less(stride[one], stride[other])) - int(_is_less(stride[other], stride[one]))

    return tuple(sorted(range(len(stride)), key=cmp_to_key(compare)))


def _is_less(one: Any, other: Any) -> bool:
    if guard_or_false(one < other):
        return True
    # A multiple that is not the same number is larger: strides are positive.
    if guard_or_false(other % one == 0) and guard_or_true(one != other):
        return True
    if guard_or_false(one % other == 0):
        return False
    return bool(one < other)
