"""Results of a loop that hold what every iteration returned."""

from __future__ import annotations

from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch.utils._sympy.functions import FloorDiv, Mod

from pteron.errors import ExportError
from pteron.exir.edge.control_flow import (
    ADD,
    APPEND_ROW,
    EMPTY_TENSOR,
    EXTENT,
    FLOOR_DIVIDE,
    MULTIPLY,
    REMAINDER,
    ControlFlow,
)
from pteron.exir.edge.tensor_spec import TensorSpec
from pteron.exir.emit.control_flow.body_host import BodyHost
from pteron.exir.schema import Int, IntList, Null


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


class StackedResults:
    """The values that the results of `call` from `call.stacked_from` on become.

    `indices`: what readers of the loop see. Rows are appended to a tensor that grows; where the number of
    rows is fixed, readers see the same memory as a tensor of fixed shape.
    """

    def __init__(self, host: BodyHost, call: ControlFlow) -> None:
        self._host = host
        self._call = call
        self._specs: list[TensorSpec] = list(call.node.meta["spec"][call.stacked_from :])
        self.indices: list[int] = []
        self._growing: list[int] = []
        for spec in self._specs:
            is_view = not spec.is_dynamic and spec.root.memory_id is not None
            growing = host.table.add_tensor(spec, is_growing=True)
            self._growing.append(growing)
            self.indices.append(host.table.add_result(spec) if is_view else growing)
            if not is_view:
                host.table.keep_result(spec, growing)

    def start(self, count: int) -> None:
        """Give results that vary the shape that they will have, with `count` rows.

        Rows are appended to a tensor of their shape, and where there are none nothing else would tell.
        """
        for spec, growing in zip(self._specs, self._growing, strict=True):
            if not spec.is_dynamic:
                continue
            inner = ExtentValues(self._host, self._call.node)
            extents = [count, *(inner.value_of(extent) for extent in spec.extents[1:])]
            size = self._host.table.add(IntList(extents))
            no_format = self._host.table.add(Null())
            self._host.code.kernel(EMPTY_TENSOR, [size, no_format, growing, growing], self._call.node)

    def append(self, rows: list[int], position: int) -> None:
        """Store `rows`, one value per result, as number `position` (an index value)."""
        for row, growing in zip(rows, self._growing, strict=True):
            self._host.code.kernel(APPEND_ROW, [growing, row, position], self._call.node)
