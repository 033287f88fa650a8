"""Largest numbers of what operators find in data, where the shape rule that PyTorch is given states none.

The extent of such a result is a symbol of its own. PyTorch's operators bound it (`nonzero` by the number of
elements); torchvision's rule of `nms` does not, though it keeps at most all boxes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch.export import ExportedProgram
from torch.utils._sympy.value_ranges import ValueRanges

from pteron.exir.edge.control_flow import graph_modules
from pteron.exir.edge.extent_bounds import extent_bounds

#: Operators by name → the extent that the first one of their result cannot exceed.
_MOST: dict[str, Callable[[torch.fx.Node], Any]] = {
    "torchvision::nms": lambda node: _value(node.args[0]).shape[0],
}


def _value(node: Any) -> torch.Tensor:
    value: torch.Tensor = node.meta["val"]
    return value


def bound_found_numbers(program: ExportedProgram) -> None:
    """Give the numbers that operators of `program` find their largest values, in its `range_constraints` and
    in the shape environment, in place. A bound that is there already, and lower, stays.
    """
    for module in graph_modules(program.graph_module):
        for node in module.graph.nodes:
            most = _MOST.get(_operator_name(node.target)) if node.op == "call_function" else None
            if most is not None:
                _bound(program, _value(node).shape[0], most(node))


def _operator_name(target: Any) -> str:
    return str(target._schema.name) if isinstance(target, torch._ops.OpOverload) else ""


def _bound(program: ExportedProgram, found: int | torch.SymInt, most: int | torch.SymInt) -> None:
    ranges = program.range_constraints
    _, largest = extent_bounds(most, ranges)
    if isinstance(found, int) or largest is None:
        return
    symbol, shape_env = sympy.sympify(found.node.expr), found.node.shape_env
    if not symbol.is_Symbol:
        return
    smallest, known = extent_bounds(found, ranges)
    largest = largest if known is None else min(known, largest)
    # PyTorch takes such a number for at least two while it traces; the data may hold none.
    shape_env.var_to_range[symbol] = ValueRanges(min(smallest, largest), largest)
    ranges[symbol] = ValueRanges(0, largest)
