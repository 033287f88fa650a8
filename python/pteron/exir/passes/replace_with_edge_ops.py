"""Move a graph of PyTorch operators into the edge dialect."""

from __future__ import annotations

from torch._ops import OpOverload
from torch.export import ExportedProgram

from pteron.exir.edge.control_flow import graph_modules
from pteron.exir.edge.edge_op_overload import edge_op_of
from pteron.exir.edge.symbolic_ops import is_symbolic_op
from pteron.exir.passes.sync_output_names import sync_output_names


def replace_with_edge_ops(program: ExportedProgram) -> None:
    """Point every call of a PyTorch overload at its edge operator, in place; symbolic arithmetic stays as
    it is.

    Nodes get new names after their operator (`aten_add_tensor`), and the signature follows.
    """
    for module in graph_modules(program.graph_module):
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
    sync_output_names(program)
