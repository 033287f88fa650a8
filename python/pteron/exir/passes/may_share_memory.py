"""Where a copy of a tensor must stay a tensor of its own."""

from __future__ import annotations

import torch
from torch.export import ExportedProgram

from pteron.exir.edge.control_flow import graph_modules
from pteron.exir.passes.constant_values import written_operands


def written_nodes(program: ExportedProgram) -> set[torch.fx.Node]:
    """Every node of `program` into whose memory a call writes."""
    return {
        operand
        for module in graph_modules(program.graph_module)
        for node in module.graph.nodes
        for operand in written_operands(node)
    }


def may_share_memory(copy: torch.fx.Node, source: torch.fx.Node, written: set[torch.fx.Node]) -> bool:
    """Whether the readers of `copy` may read `source` in its place, which holds the same values.

    Not where the copy is returned (each output has memory of its own), where one of the two is written to
    later (the copy holds the value from before), or where the copy feeds a call that writes.
    """
    if source in written or copy in written:
        return False
    return not any(user.op == "output" or written_operands(user) for user in copy.users)
