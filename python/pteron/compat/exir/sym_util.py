"""Symbolic extents as numbers: their value on the example inputs, and their upper bound."""

from __future__ import annotations

from collections.abc import Iterable

import sympy  # type: ignore[import-untyped]
import torch

from pteron.exir.edge.extent_bounds import largest_extent as eval_upper_bound
from pteron.exir.edge.extent_bounds import value_on_example as eval_expr

__all__ = ["collect_free_symbols", "eval_expr", "eval_shape", "eval_shape_upper_bound", "eval_upper_bound"]


def eval_shape(shape: Iterable[int | torch.SymInt]) -> list[int | None]:
    """`eval_expr` of each extent."""
    return [eval_expr(extent) for extent in shape]


def eval_shape_upper_bound(shape: Iterable[int | torch.SymInt]) -> list[int]:
    """`eval_upper_bound` of each extent."""
    return [eval_upper_bound(extent) for extent in shape]


def collect_free_symbols(shape: Iterable[int | torch.SymInt]) -> set[sympy.Symbol]:
    """The symbols that the extents are made of."""
    return {
        symbol
        for extent in shape
        if isinstance(extent, torch.SymInt)
        for symbol in extent.node.expr.free_symbols
    }
