"""The table of decompositions that ExecuTorch gives callers of `run_decompositions`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.export import default_decompositions


def _default_decomposition_table(_use_old_decomp_table: bool = False) -> dict[Any, Callable[..., Any]]:
    """Operator → what it decomposes into, on the way to core ATen; a dict of the caller's own."""
    return dict(default_decompositions().materialize())
