"""Bounds of symbolic dimension extents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

Ranges = Mapping[Any, ValueRanges[Any]]


def extent_bounds(extent: int | torch.SymInt, ranges: Ranges | None = None) -> tuple[int, int | None]:
    """(smallest, largest) value of a dimension extent; largest is None where it has no bound.

    `ranges` maps symbols to their ranges (`ExportedProgram.range_constraints`); a symbol that it does not
    name has the range that its own shape environment keeps.
    """
    lower, upper = number_bounds(extent, ranges)
    return max(0, lower or 0), upper


def number_bounds(extent: int | torch.SymInt, ranges: Ranges | None = None) -> tuple[int | None, int | None]:
    """(smallest, largest) value of a symbolic integer, which may be negative; None where it has no bound."""
    if isinstance(extent, int):
        return extent, extent
    node = extent.node
    expression = sympy.sympify(node.expr)
    if expression.is_number:
        return int(expression), int(expression)
    known = dict(node.shape_env.var_to_range)
    known.update(
        {symbol: value for symbol, value in (ranges or {}).items() if symbol in expression.free_symbols}
    )
    bounds = bound_sympy(expression, known)
    is_open_below = bounds.lower in (-int_oo, -sympy.oo) or int(bounds.lower) <= -(2**62)
    is_open_above = bounds.upper in (int_oo, sympy.oo) or int(bounds.upper) >= 2**62
    return (
        None if is_open_below else int(sympy.ceiling(bounds.lower)),
        None if is_open_above else int(sympy.floor(bounds.upper)),
    )


def value_on_example(extent: int | torch.SymInt) -> int | None:
    """The extent on the example inputs; None for a number that only the data decides."""
    if isinstance(extent, int):
        return extent
    node = extent.node
    try:
        return int(node.shape_env.guarding_hint_or_throw(node.expr))
    except GuardOnDataDependentSymNode:
        return None


def largest_extent(extent: int | torch.SymInt) -> int:
    """The largest value that the ranges of the symbols allow; without one, the value on the example inputs.

    Raises:
        RuntimeError: there is neither.
    """
    _, largest = number_bounds(extent)
    if largest is None:
        largest = value_on_example(extent)
    if largest is None:
        raise RuntimeError(
            f"cannot evaluate a finite upper bound of {extent}, and there is no value from an example input; "
            "give the dimension a bound: torch.export.Dim(name, max=...)"
        )
    return largest


def has_unbounded_extent(value: Any, ranges: Ranges | None = None) -> bool:
    """Whether a dimension of a tensor in a nest of values has no largest extent."""
    return any(
        extent_bounds(extent, ranges)[1] is None
        for leaf in torch.utils._pytree.tree_leaves(value)
        if isinstance(leaf, torch.Tensor)
        for extent in leaf.shape
    )


def symbol_name(extent: int | torch.SymInt) -> str | None:
    """The name of the symbol that an extent is; None for numbers and for expressions."""
    if isinstance(extent, int):
        return None
    expression = sympy.sympify(extent.node.expr)
    return str(expression) if expression.is_Symbol else None
