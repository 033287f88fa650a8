"""`map`, `scan` and `associative_scan`: one iteration per row of the mapped values, in order."""

from __future__ import annotations

import torch

from pteron.errors import ExportError
from pteron.exir.edge.control_flow import (
    ADD,
    EXTENT,
    IS_EQUAL,
    IS_LESS,
    SELECT_ROW,
    SUBTRACT,
    ControlFlow,
    Meaning,
)
from pteron.exir.edge.tensor_spec import TensorSpec
from pteron.exir.emit.control_flow.body_host import BodyHost, bind_captured
from pteron.exir.emit.control_flow.carried_values import CarriedValues
from pteron.exir.emit.control_flow.stacked_results import StackedResults
from pteron.exir.schema import Bool, Int, JumpFalseCall


def emit_counted_loop(host: BodyHost, call: ControlFlow) -> None:
    """Append the loop. `associative_scan` starts with row 0 and combines the others with what it has so far,
    one after the other.
    """
    loop = _CountedLoop(host, call)
    loop.emit()


class _CountedLoop:
    def __init__(self, host: BodyHost, call: ControlFlow) -> None:
        if not call.mapped:
            raise ExportError(
                f"{call.kind} without mapped tensors has no number of iterations",
                hint="use torch.while_loop, or give it a tensor to go over",
            )
        self._host = host
        self._call = call
        self._mapped = [host.value_of(operand) for operand in call.mapped]
        self._is_combining = call.kind == "associative_scan"
        self._first = 1 if self._is_combining else 0
        self._rows = self._trip_count()
        self._count = -1
        self._carried = CarriedValues(host, call)
        self._stacked = StackedResults(host, call)

    def _trip_count(self) -> int | torch.SymInt:
        operand = self._call.mapped[0]
        rows: int | torch.SymInt = operand.meta["val"].shape[0]
        return rows

    def emit(self) -> None:
        host, call, code, table = self._host, self._call, self._host.code, self._host.table
        body = call.iteration
        bind_captured(host, body)
        self._carried.bind(body)
        self._emit_count()
        self._stacked.start(self._count)
        position = table.add(Int(self._first))
        if self._is_combining:
            leave = [self._unless_more_than(table.add(Int(0)), always=0)]
            self._start_with_first_row()
            code.move(table.add(Int(self._first)), position, call.node)
        else:
            self._carried.start()
            leave = []
        leave.append(self._unless_more_than(position, always=self._first))
        top = code.here
        self._select_rows(position)
        host.emit_calls(body.module.graph)
        first_row = 0 if self._is_combining else call.stacked_from
        self._stacked.append([host.value_of(result) for result in body.results[first_row:]], position)
        self._carried.advance()
        self._next(position, top)
        for jump in leave:
            if jump is not None:
                code.land(jump)
        slots = [] if self._is_combining else self._carried.slots
        table.bind(call.node, [*slots, *self._stacked.indices])

    def _emit_count(self) -> None:
        table = self._host.table
        self._count = table.add(Int(0))
        self._host.code.kernel(EXTENT, [self._mapped[0], table.add(Int(0)), self._count], self._call.node)

    def _unless_more_than(self, position: int, *, always: int) -> JumpFalseCall | None:
        """Jump out of the loop unless there is a row at `position`; nothing where the number of rows, fixed,
        is more than `always`.
        """
        if isinstance(self._rows, int) and self._rows > always:
            return None
        is_row = self._host.table.add(Bool(False))
        self._host.code.kernel(IS_LESS, [position, self._count, is_row], self._call.node)
        return self._host.code.jump_false(is_row, self._call.node)

    def _start_with_first_row(self) -> None:
        zero = self._host.table.add(Int(0))
        self._carried.start_with_rows(self._mapped, zero)
        self._stacked.append(self._carried.slots, zero)

    def _select_rows(self, position: int) -> None:
        table = self._host.table
        for parameter in self._call.iteration.having(Meaning.ROW):
            if not parameter.placeholder.users:
                continue
            spec = parameter.placeholder.meta["spec"]
            assert isinstance(spec, TensorSpec)
            row = table.add_tensor(spec)
            table.bind(parameter.placeholder, row)
            source, dim = self._mapped[parameter.position], table.add(Int(0))
            self._host.code.kernel(SELECT_ROW, [source, dim, position, row, row], self._call.node)

    def _next(self, position: int, top: int) -> None:
        table, code, node = self._host.table, self._host.code, self._call.node
        code.kernel(ADD, [position, table.add(Int(1)), position], node)
        is_done = table.add(Bool(False))
        code.kernel(IS_EQUAL, [position, self._count, is_done], node)
        code.jump_false(is_done, node, top)
        if not self._is_combining:
            # The loop may begin again, in this run or in the next.
            code.kernel(SUBTRACT, [position, self._count, position], node)
