"""Let a reshape share the memory of what it reshapes."""

from __future__ import annotations

from typing import Any

import torch

from pteron.exir.edge.edge_op_overload import edge_op_by_name
from pteron.exir.edge.memory_nodes import view
from pteron.exir.edge.tensor_spec import dim_order_of_value
from pteron.exir.passes.exported_program_pass import each_graph

# Reshapes: all of them keep the elements and their order, and change the shape only.
RESHAPES = frozenset(
    edge_op_by_name("aten", opname, overload)
    for opname, overload in (
        ("view_copy", "default"),
        ("unsqueeze_copy", "default"),
        ("squeeze_copy", "dim"),
        ("squeeze_copy", "dims"),
    )
)


def is_view_copy(node: torch.fx.Node) -> bool:
    """Whether `node` is a reshape that this pass may turn into a view."""
    return node.op == "call_function" and (node.target is view or node.target in RESHAPES)


@each_graph
def replace_view_copies(module: torch.fx.GraphModule) -> None:
    """Turn reshapes of contiguous tensors into `view` nodes, in place.

    A reshape that is returned stays a copy: an output has memory of its own. So does one whose new shape
    cannot be written down with the symbolic numbers that the graph has computed.
    """
    graph = module.graph
    for node in list(graph.nodes):
        if not is_view_copy(node) or node.target is view or any(user.op == "output" for user in node.users):
            continue
        base = node.args[0]
        size = reshaped_size(node)
        if not isinstance(base, torch.fx.Node) or size is None:
            continue
        if any(
            dim_order_of_value(value) != tuple(range(value.dim()))
            for value in (base.meta["val"], node.meta["val"])
        ):
            continue
        with graph.inserting_before(node):
            shared = graph.call_function(view, (base, size))
        shared.meta = node.meta.copy()
        node.replace_all_uses_with(shared)
        graph.erase_node(node)
    module.recompile()


def reshaped_size(node: torch.fx.Node) -> list[Any] | None:
    """The new shape as ints and symbolic nodes, at most one of them -1 ("what is left"); None if not
    expressible.
    """
    if node.target is edge_op_by_name("aten", "view_copy", "default"):
        return list(node.args[1])  # type: ignore[arg-type]
    extents = node.meta["val"].shape
    size = [extent if isinstance(extent, int) else -1 for extent in extents]
    return size if size.count(-1) <= 1 else None
