"""Remove edge operators that return exactly what they were given."""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload

from pteron.exir.edge.dim_order_ops import LIBRARY_NAMESPACE
from pteron.exir.edge.edge_op_overload import EdgeOpOverload
from pteron.exir.passes.effects import may_share_memory, written_nodes
from pteron.exir.passes.exported_program_pass import each_graph_with
from pteron.exir.passes.remove_noops import NOOPS_WITHOUT_CHANGE, is_same_layout

_DIM_ORDER = getattr(torch.ops, LIBRARY_NAMESPACE)
_CANDIDATES = NOOPS_WITHOUT_CHANGE | {
    _DIM_ORDER._to_dim_order_copy.default,
    _DIM_ORDER._clone_dim_order.default,
    torch.ops.aten.squeeze_copy.dims,
    torch.ops.aten.squeeze_copy.dim,
    torch.ops.aten.repeat.default,
}


@each_graph_with(written_nodes)
def remove_noop_copies(module: torch.fx.GraphModule, written: set[torch.fx.Node]) -> bool:
    """Remove edge operators that change neither data nor layout, in place: copies, casts to the same dtype,
    reshapes to the same shape, full slices, repeats that add nothing.

    Before: `y = slice_copy(x, 0, 0, 9223372036854775807); z = sin(y)`. After: `z = sin(x)`. What is returned,
    feeds a write or copies what a later call writes to stays.
    """
    changed = False
    for node in list(module.graph.nodes):
        target: Any = node.target
        op = target.aten_overload if isinstance(target, EdgeOpOverload) else target
        if node.op != "call_function" or not isinstance(op, OpOverload) or op not in _CANDIDATES:
            continue
        source = node.args[0]
        if not isinstance(source, torch.fx.Node) or not may_share_memory(node, source, written):
            continue
        if is_same_layout(source.meta.get("val"), node.meta.get("val")):
            node.replace_all_uses_with(source)
            module.graph.erase_node(node)
            changed = True
    module.recompile()
    return changed
