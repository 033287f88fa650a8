"""Reshape once instead of several times in a row."""

from __future__ import annotations

from typing import Any

import torch

from pteron.exir.edge.debug_handles import stand_for
from pteron.exir.edge.edge_op_overload import edge_op_by_name
from pteron.exir.edge.tensor_spec import dim_order_of_value
from pteron.exir.passes.effects import written_nodes
from pteron.exir.passes.exported_program_pass import each_graph_with
from pteron.exir.passes.replace_view_copies import RESHAPES, reshaped_size

_VIEW = edge_op_by_name("aten", "view_copy", "default")
_EXPAND = edge_op_by_name("aten", "expand_copy", "default")


@each_graph_with(written_nodes)
def merge_views(module: torch.fx.GraphModule, written: set[torch.fx.Node]) -> bool:
    """Let a reshape of a reshape read what the inner one reads, and an expand of an expand too, in place.

    Before: `y = view_copy(unsqueeze_copy(x, 0), [2, 3])`. After: `y = view_copy(x, [2, 3])`. Reshapes are
    `view_copy`, `unsqueeze_copy` and `squeeze_copy`; those whose new shape cannot be written down with the
    numbers that the graph has computed stay.
    """
    changed = False
    for node in list(module.graph.nodes):
        if node.op != "call_function" or not node.args or not isinstance(node.args[0], torch.fx.Node):
            continue
        inner = node.args[0]
        if inner in written or not inner.args or not isinstance(inner.args[0], torch.fx.Node):
            continue
        arguments = _without_inner(node, inner)
        if arguments is None:
            continue
        target, args = arguments
        stand_for(node, inner)
        node.target, node.args = target, args
        if not inner.users:
            module.graph.erase_node(inner)
        changed = True
    if changed:
        module.recompile()
    return changed


def _without_inner(node: torch.fx.Node, inner: torch.fx.Node) -> tuple[Any, tuple[Any, ...]] | None:
    """Target and arguments of `node` reading the operand of `inner`; None where that is another result."""
    source = inner.args[0]
    if node.target in RESHAPES and inner.target in RESHAPES:
        size = reshaped_size(node)
        values = [each.meta["val"] for each in (source, inner, node)]  # type: ignore[union-attr]
        if size is None or any(dim_order_of_value(v) != tuple(range(v.dim())) for v in values):
            return None
        return _VIEW, (source, size)
    if node.target is _EXPAND and inner.target is _EXPAND and not (node.kwargs or inner.kwargs):
        # -1 in the outer size means an extent of the inner result, which may be larger than the source's.
        extents = inner.meta["val"].shape
        size = list(node.args[1])  # type: ignore[arg-type]
        added = len(size) - len(extents)
        for position, extent in enumerate(size):
            if extent == -1 and position >= added:
                kept = extents[position - added]
                if not isinstance(kept, int):
                    return None
                size[position] = kept
        return _EXPAND, (source, size)
    return None
