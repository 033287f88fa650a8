"""Replace operators that take a memory format by operators that state a dimension order."""

from __future__ import annotations

import torch

from pteron.exir.edge.dim_order_ops import LIBRARY_NAMESPACE
from pteron.exir.edge.tensor_spec import dim_order_of_value
from pteron.exir.passes.exported_program_pass import each_graph

_DIM_ORDER = getattr(torch.ops, LIBRARY_NAMESPACE)
_REPLACEMENTS = {
    torch.ops.aten._to_copy.default: _DIM_ORDER._to_dim_order_copy.default,
    torch.ops.aten.clone.default: _DIM_ORDER._clone_dim_order.default,
    torch.ops.aten.empty.memory_format: _DIM_ORDER._empty_dim_order.default,
}


@each_graph
def state_dim_order(module: torch.fx.GraphModule) -> None:
    """Rewrite `_to_copy`, `clone` and `empty` of `program` with the dimension order of their result, in
    place.
    """
    for node in module.graph.nodes:
        replacement = _REPLACEMENTS.get(node.target) if node.op == "call_function" else None
        if replacement is None:
            continue
        keywords = {
            name: value
            for name, value in node.kwargs.items()
            if name not in ("memory_format", "layout", "device", "pin_memory")
        }
        keywords["dim_order"] = list(dim_order_of_value(node.meta["val"]))
        node.target = replacement
        node.kwargs = keywords
