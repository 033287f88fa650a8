"""Move a graph of PyTorch operators into the edge dialect."""

from __future__ import annotations

import torch
from torch._ops import OpOverload

from pteron.exir.edge.edge_op_overload import edge_op_of
from pteron.exir.edge.symbolic_ops import is_symbolic_op
from pteron.exir.passes.exported_program_pass import each_graph


@each_graph
def replace_with_edge_ops(module: torch.fx.GraphModule) -> None:
    """Point every call of a PyTorch overload at its edge operator, in place; symbolic arithmetic stays as
    it is.

    Nodes get new names after their operator (`aten_add_tensor`).
    """
    for node in list(module.graph.nodes):
        if node.op != "call_function" or not isinstance(node.target, OpOverload):
            continue
        if is_symbolic_op(node.target):
            continue
        with module.graph.inserting_before(node):
            edge = module.graph.call_function(edge_op_of(node.target), node.args, node.kwargs)
        edge.meta = node.meta.copy()
        node.replace_all_uses_with(edge)
        module.graph.erase_node(node)
