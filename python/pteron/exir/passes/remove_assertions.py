"""Drop run-time assertions that export leaves in the graph."""

from __future__ import annotations

import torch

from pteron.exir.passes.exported_program_pass import each_graph

_ASSERTIONS = frozenset(
    {
        torch.ops.aten._assert_async.default,
        torch.ops.aten._assert_async.msg,
        torch.ops.aten._assert_scalar.default,
        torch.ops.aten._assert_tensor_metadata.default,
        torch.ops.aten.sym_constrain_range.default,
        torch.ops.aten.sym_constrain_range_for_size.default,
    }
)


@each_graph
def remove_assertions(module: torch.fx.GraphModule) -> None:
    """Remove assertion operators from `program`, in place.

    They check what the program's interface states already (dimension ranges) or what no kernel computes;
    the runtime checks its inputs against `pteron.interface`.
    """
    for node in reversed(module.graph.nodes):
        if node.op == "call_function" and node.target in _ASSERTIONS:
            module.graph.erase_node(node)
