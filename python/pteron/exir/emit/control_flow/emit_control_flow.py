"""One control-flow call → instructions."""

from __future__ import annotations

import torch

from pteron.exir.edge.control_flow import control_flow_of
from pteron.exir.emit.control_flow.body_host import BodyHost
from pteron.exir.emit.control_flow.branches import emit_branches
from pteron.exir.emit.control_flow.counted_loop import emit_counted_loop
from pteron.exir.emit.control_flow.while_loop import emit_while_loop


def emit_control_flow(host: BodyHost, node: torch.fx.Node) -> None:
    """Append the instructions of `node` and bind it to its results. Raises `ExportError`."""
    call = control_flow_of(node)
    if call.kind == "cond":
        emit_branches(host, call)
    elif call.kind == "while_loop":
        emit_while_loop(host, call)
    else:
        emit_counted_loop(host, call)
