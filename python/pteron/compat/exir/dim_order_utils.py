"""Dimension orders and PyTorch's memory formats: each from the other."""

from __future__ import annotations

from collections.abc import Sequence

import torch

_CHANNELS_LAST = [0, 2, 3, 1]


def get_memory_format(dim_order: Sequence[int] | None) -> torch.memory_format:
    """The memory format of a dimension order; `preserve_format` for None.

    Raises:
        AssertionError: no memory format has this order.
    """
    if dim_order is None:
        return torch.preserve_format
    if list(dim_order) == list(range(len(dim_order))):
        return torch.contiguous_format
    if list(dim_order) == _CHANNELS_LAST:
        return torch.channels_last
    raise AssertionError(f"Failed to map a given dim_order: {dim_order} to a torch.memory_format")


def get_dim_order(memory_format: torch.memory_format | None, ndim: int) -> list[int] | None:
    """The dimension order of a memory format at a rank; None where the input's order is kept.

    Raises:
        AssertionError: the format has no order at this rank.
    """
    if memory_format in (None, torch.preserve_format):
        return None
    if memory_format is torch.contiguous_format and ndim >= 0:
        return list(range(ndim))
    if memory_format is torch.channels_last and ndim == 4:
        return list(_CHANNELS_LAST)
    raise AssertionError(
        f"Failed to generate dim_order for a given memory format: {memory_format} of {ndim} dimensions"
    )


def is_channel_last_dim_order(tensor: torch.Tensor) -> bool:
    """Whether a tensor of rank 4 lies channels last. Extents of 1 count as PyTorch's `dim_order` sorts
    them.
    """
    return tensor.dim() == 4 and list(tensor.dim_order()) == _CHANNELS_LAST


def is_contiguous_dim_order(tensor: torch.Tensor) -> bool:
    """Whether the dimensions of a tensor lie in their own order."""
    return list(tensor.dim_order()) == list(range(tensor.dim()))
