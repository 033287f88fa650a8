"""What the emission of control flow needs of the method that it is part of."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from pteron.exir.edge.control_flow import Body, Meaning
from pteron.exir.emit.instruction_list import InstructionList
from pteron.exir.emit.value_table import ValueTable


class BodyHost(Protocol):
    """A method that is being emitted."""

    @property
    def table(self) -> ValueTable:
        """Its values."""

    @property
    def code(self) -> InstructionList:
        """Its instructions."""

    def emit_calls(self, graph: torch.fx.Graph) -> None:
        """Append the instructions of a graph, whose placeholders are bound."""

    def value_of(self, value: Any) -> int:
        """The value of a node that stands for one, or a new one for a number."""


def bind_captured(host: BodyHost, body: Body) -> None:
    """Let the captured parameters of `body` be the values that they capture."""
    for parameter in body.having(Meaning.CAPTURED):
        operand = parameter.operand
        index = (
            host.table.of(operand) if isinstance(operand, torch.fx.Node) else host.table.add_literal(operand)
        )
        host.table.bind(parameter.placeholder, index)
