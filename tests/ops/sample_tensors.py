"""Tensors that operators are tried on: reproducible, with ties, in every element type."""

from __future__ import annotations

import math

import torch

INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
ALL = [*FLOATS, *INTEGERS, torch.bool]
NAN, INF = math.nan, math.inf


def values(
    shape: tuple[int, ...], dtype: torch.dtype = torch.float32, seed: int = 0, low: int = -9
) -> torch.Tensor:
    """Numbers with signs, zeros and ties; bool for bool."""
    generator = torch.Generator().manual_seed(seed + sum(shape))
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if dtype.is_floating_point:
        return (torch.randint(-64, 65, shape, generator=generator) / 16).to(dtype)
    low = 0 if dtype == torch.uint8 else low
    return torch.randint(low, 10, shape, generator=generator).to(dtype)


def special(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """What IEEE arithmetic has beside numbers."""
    return torch.tensor([0.0, -0.0, 1.0, -1.0, NAN, INF, -INF, 0.5, -2.5, 1e30, -1e-30]).to(dtype)


def channels_last(shape: tuple[int, ...], dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Values in channels-last order."""
    return values(shape, dtype, seed).contiguous(memory_format=torch.channels_last)


def distinct(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Numbers of which no two are equal, in no order; at most 120 for int8."""
    order = torch.randperm(math.prod(shape), generator=torch.Generator().manual_seed(sum(shape)))
    return order.reshape(shape).to(dtype)
