"""A dequantising node for each reader.

Backends match `dequantize → operator → quantize`; where two operators read one dequantised value, only one of
them could take the node along.
"""

from __future__ import annotations

import copy

import torch
from torch.fx.passes.infra.pass_base import PassResult

from pteron.exir.edge.exir_ops import exir_ops
from pteron.exir.passes.export_pass import ExportPass

__all__ = ["DuplicateDequantNodePass"]


class DuplicateDequantNodePass(ExportPass):
    """Gives every reader of a `dequantize_per_tensor` a copy of its own; the first reader keeps the node."""

    def call(self, graph_module: torch.fx.GraphModule) -> PassResult:
        dequantize = exir_ops.edge.quantized_decomposed.dequantize_per_tensor.default
        modified = False
        for node in list(graph_module.graph.nodes):
            if node.op != "call_function" or node.target is not dequantize:
                continue
            for reader in [user for user in node.users if user.op == "call_function"][1:]:
                with graph_module.graph.inserting_before(reader):
                    twin = graph_module.graph.node_copy(node)
                twin.meta = dict(node.meta)
                twin.meta["val"] = copy.copy(node.meta["val"])
                reader.replace_input_with(node, twin)
                modified = True
        graph_module.recompile()
        return PassResult(graph_module, modified)
