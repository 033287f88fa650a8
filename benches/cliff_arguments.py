"""Element types and arguments of the rows of `cliff_rows.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from operator_rows import Arguments, Row, b8, bf16, f16, f64, i32, i64
from torch import Tensor

f32 = torch.float32
FLOATS, INTEGERS = (f32, f64, f16, bf16), (i64, i32)
ALL = (*FLOATS, *INTEGERS, b8)


def short(dtype: torch.dtype) -> str:
    """f32 for torch.float32."""
    name = str(dtype).removeprefix("torch.")
    for long, brief in (("bfloat", "bf"), ("float", "f"), ("int", "i")):
        name = name.replace(long, brief)
    return name


def each(
    name: str,
    overload: str,
    make: Callable[[torch.dtype], Arguments],
    dtypes: tuple[torch.dtype, ...] = FLOATS,
    keywords: tuple[tuple[str, Any], ...] = (),
) -> list[Row]:
    """A row for each element type."""
    return [Row(f"{name} {short(d)}", overload, make(d), keywords) for d in dtypes]


def unit(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Values within (-1, 1)."""
    return (torch.rand(shape) * 1.98 - 0.99).to(dtype)


def above(shape: tuple[int, ...], dtype: torch.dtype, least: float = 1.01) -> Tensor:
    """Values from `least` up."""
    return (torch.rand(shape) * 4 + least).to(dtype)


def unequal(n: int, dtype: torch.dtype, dim: int) -> Tensor:
    """Numbers from 0 to 255 in no order, each once along a dimension: equal ones have no order in eager."""
    shape = (max(1, n // 256), 256) if dim == 1 else (256, max(1, n // 256))
    return torch.rand(shape).argsort(dim).to(dtype)
