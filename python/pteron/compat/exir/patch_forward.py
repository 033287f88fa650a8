"""`patch_forward`: another method of a model in the place of `forward` for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def patch_forward(obj: torch.nn.Module, new_method: Callable[..., Any]) -> Iterator[None]:
    """Inside, calls of `obj` call `new_method`."""
    original = obj.forward
    obj.forward = new_method
    try:
        yield
    finally:
        obj.forward = original
