"""Placeholders of bodies that stand for a value of the caller."""

from __future__ import annotations

import torch

from pteron.exir.edge.control_flow import Body, Meaning
from pteron.exir.emit.control_flow.body_host import BodyHost


def bind_captured(host: BodyHost, body: Body) -> None:
    """Let the captured parameters of `body` be the values that they capture."""
    for parameter in body.having(Meaning.CAPTURED):
        operand = parameter.operand
        index = (
            host.table.of(operand) if isinstance(operand, torch.fx.Node) else host.table.add_literal(operand)
        )
        host.table.bind(parameter.placeholder, index)
