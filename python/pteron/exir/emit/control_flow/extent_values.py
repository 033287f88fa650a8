"""Extents of tensors as values that instructions compute."""

from __future__ import annotations

from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch.utils._sympy.functions import FloorDiv, Mod

from pteron.errors import ExportError
from pteron.exir.edge.loop_operators import ADD, EXTENT, FLOOR_DIVIDE, MULTIPLY, REMAINDER
from pteron.exir.emit.control_flow.body_host import BodyHost
from pteron.exir.schema import Int


class ExtentValues:
    """Finds or computes extents from what was emitted before `node`."""

    def __init__(self, host: BodyHost, node: torch.fx.Node) -> None:
        self._host = host
        self._node = node

    def value_of(self, extent: int | torch.SymInt) -> int:
        """The value index of an extent. ExportError where nothing before the node tells it."""
        if isinstance(extent, int):
            return self._host.table.add(Int(extent))
        return self._value(sympy.sympify(extent.node.expr))

    def _value(self, expression: Any) -> int:
        if expression.is_Integer:
            return self._host.table.add(Int(int(expression)))
        found = self._found(expression)
        if found is not None:
            return found
        parts = expression.args
        if isinstance(expression, sympy.Add):
            return self._folded(ADD, parts)
        if isinstance(expression, sympy.Mul):
            return self._folded(MULTIPLY, parts)
        if isinstance(expression, FloorDiv):
            return self._folded(FLOOR_DIVIDE, parts)
        if isinstance(expression, Mod):
            return self._folded(REMAINDER, parts)
        raise ExportError(
            f"the extent {expression} of a loop's result must be known before the loop, and nothing there "
            "tells it",
            got=str(expression),
            hint="return rows whose shape follows from the shapes of what the loop is given",
        )

    def _found(self, expression: Any) -> int | None:
        """A number of that value, or the extent of a tensor."""
        table = self._host.table
        for node in self._node.graph.nodes:
            if node is self._node:
                return None
            value = node.meta.get("val")
            if not table.has(node):
                continue
            if isinstance(value, torch.SymInt) and sympy.sympify(value.node.expr) == expression:
                return table.index_of(node)
            if isinstance(value, torch.Tensor):
                for dim, extent in enumerate(_extents(value)):
                    if isinstance(extent, torch.SymInt) and sympy.sympify(extent.node.expr) == expression:
                        result = table.add(Int(0))
                        arguments = [table.index_of(node), table.add(Int(dim)), result]
                        self._host.code.kernel(EXTENT, arguments, self._node)
                        return result
        return None

    def _folded(self, operator: tuple[str, str], parts: tuple[Any, ...]) -> int:
        left = self._value(parts[0])
        for part in parts[1:]:
            right, result = self._value(part), self._host.table.add(Int(0))
            self._host.code.kernel(operator, [left, right, result], self._node)
            left = result
        return left


def _extents(value: torch.Tensor) -> list[Any]:
    return list(value.shape)
