"""Values that a loop carries from one iteration to the next."""

from __future__ import annotations

from typing import Any

import torch

from pteron.exir.edge.control_flow import COPY_TENSOR, SELECT_ROW, Body, ControlFlow, Meaning, Parameter
from pteron.exir.edge.tensor_spec import TensorSpec
from pteron.exir.emit.control_flow.body_host import BodyHost
from pteron.exir.schema import Bool, Int, IntList


class CarriedValues:
    """One value per carried parameter, its *slot*. The slots are results of the loop, except those of
    `associative_scan`.
    """

    def __init__(self, host: BodyHost, call: ControlFlow) -> None:
        self._host = host
        self._call = call
        self._parameters = call.iteration.having(Meaning.CARRIED)
        self.slots = [self._slot(parameter) for parameter in self._parameters]

    def bind(self, body: Body) -> None:
        """Let the carried parameters of `body` be the slots."""
        for parameter, slot in zip(body.having(Meaning.CARRIED), self.slots, strict=True):
            self._host.table.bind(parameter.placeholder, slot)

    def start(self) -> None:
        """Put the initial values into the slots."""
        for parameter, slot in zip(self._parameters, self.slots, strict=True):
            spec = parameter.placeholder.meta["spec"]
            if isinstance(spec, TensorSpec):
                self._copy(self._host.value_of(parameter.operand), slot, spec)
            else:
                self._move(self._host.value_of(parameter.operand), slot)

    def start_with_rows(self, mapped: list[int], first: int) -> None:
        """Put row `first` (an index value) of the mapped values into the slots."""
        zero = self._host.table.add(Int(0))
        for source, slot in zip(mapped, self.slots, strict=True):
            self._host.code.kernel(SELECT_ROW, [source, zero, first, slot, slot], self._call.node)

    def advance(self) -> None:
        """Put the results of the iteration into the slots."""
        results = self._call.iteration.results
        numbers: list[tuple[int, int]] = []
        for parameter, slot in zip(self._parameters, self.slots, strict=True):
            source = self._host.value_of(results[parameter.position])
            spec = parameter.placeholder.meta["spec"]
            if isinstance(spec, TensorSpec):
                self._copy(source, slot, spec)
            elif source != slot:
                numbers.append((source, slot))
        self._advance_numbers(numbers)

    def _advance_numbers(self, moves: list[tuple[int, int]]) -> None:
        # All at once: a number that an earlier move would overwrite is kept aside first.
        overwritten: set[int] = set()
        kept: dict[int, int] = {}
        for source, slot in moves:
            if source in overwritten and source not in kept:
                kept[source] = self._host.table.add_copy(source)
            overwritten.add(slot)
        for source, aside in kept.items():
            self._move(source, aside)
        for source, slot in moves:
            self._move(kept.get(source, source), slot)

    def _slot(self, parameter: Parameter) -> int:
        table, spec = self._host.table, parameter.placeholder.meta["spec"]
        if not isinstance(spec, TensorSpec):
            return table.add_symbolic(self._call.node.meta["val"][parameter.position])
        initial = parameter.operand
        if self._call.kind != "associative_scan" and _is_computed_in(initial, spec):
            slot = table.index_of(initial)
            table.keep_result(spec, slot)
            return slot
        return table.add_result(spec)

    def _copy(self, source: int, target: int, spec: TensorSpec) -> None:
        if source == target:
            return
        table = self._host.table
        order = table.add(IntList([table.add(Int(dim)) for dim in spec.dim_order]))
        is_non_blocking = table.add(Bool(False))
        self._host.code.kernel(COPY_TENSOR, [source, is_non_blocking, order, target, target], self._call.node)

    def _move(self, source: int, target: int) -> None:
        self._host.code.move(source, target, self._call.node)


def _is_computed_in(initial: Any, kept: TensorSpec) -> bool:
    return (
        isinstance(initial, torch.fx.Node)
        and initial.meta.get("spec") is not None
        and (getattr(initial.meta["spec"], "base", None) is kept)
    )
