"""Results of a loop that hold what every iteration returned."""

from __future__ import annotations

from pteron.exir.edge.control_flow import ControlFlow
from pteron.exir.edge.loop_operators import APPEND_ROW, EMPTY_TENSOR
from pteron.exir.edge.tensor_spec import TensorSpec
from pteron.exir.emit.control_flow.body_host import BodyHost
from pteron.exir.emit.control_flow.extent_values import ExtentValues
from pteron.exir.schema import IntList, Null


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
