"""The two call targets that a graph contains beside operators once results are written into given tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def alloc(spec: Any) -> Any:
    """Make room for a result. `spec` is (shape, dtype) of one tensor, or a list of them.

    In a program this is no instruction: memory planning gives each `alloc` its place. Called eagerly it
    returns empty tensors, so a planned graph can still be run for comparison.
    """
    if isinstance(spec, list):
        return [torch.empty(shape, dtype=dtype) for shape, dtype in spec]
    shape, dtype = spec
    return torch.empty(shape, dtype=dtype)


def view(base: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    """`base` under another shape with the same elements in the same order, sharing its memory."""
    return base.view(size)


# The text of a graph's code is what tests and passes of others look for, so it is ExecuTorch's.
for _function in (alloc, view):
    _function.__module__ = "executorch.exir.memory"
