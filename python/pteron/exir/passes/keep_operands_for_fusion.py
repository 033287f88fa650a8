"""Keep the memory plan from standing in the way of what the run half fuses."""

from __future__ import annotations

import torch

from pteron.exir.edge.edge_op_overload import edge_op_by_name
from pteron.exir.memory.spec_lifetimes import KEPT_SPECS
from pteron.exir.passes.exported_program_pass import each_graph

_LAYERS = frozenset(
    edge_op_by_name("aten", opname, "default") for opname in ("addmm", "mm", "bmm", "convolution")
)
_CLAMPS = frozenset(edge_op_by_name("aten", opname, "default") for opname in ("relu", "clamp", "hardtanh"))


@each_graph
def keep_operands_for_fusion(module: torch.fx.GraphModule) -> None:
    """Let the operands of a layer keep their memory until the activation behind it has run, in place.

    The run half computes both in one step and writes the activation's result while it still reads the
    layer's operands; a plan that gives their memory to that result would forbid it. `program` has specs.
    """
    for node in module.graph.nodes:
        layer = node.args[0] if node.op == "call_function" and node.target in _CLAMPS else None
        if isinstance(layer, torch.fx.Node) and layer.target in _LAYERS and len(layer.users) == 1:
            node.meta[KEPT_SPECS] = [operand.meta.get("spec") for operand in layer.all_input_nodes]
