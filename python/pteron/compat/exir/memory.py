"""What a planned graph calls for memory: allocation, release, and views of it."""

from __future__ import annotations

from typing import Any

import torch

from pteron.exir.edge.memory_nodes import alloc, view

__all__ = ["AllocSpec", "TensorAllocSpec", "alloc", "free", "view"]

TensorAllocSpec = tuple[tuple[int, ...], torch.dtype]
AllocSpec = TensorAllocSpec | list[TensorAllocSpec]


def free(spec: Any) -> None:
    """A mark in a graph after the last use of a tensor; running it does nothing."""
