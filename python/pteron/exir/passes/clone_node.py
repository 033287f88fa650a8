"""Insert a copy of a tensor."""

from __future__ import annotations

import torch

from pteron.exir.edge.edge_op_overload import edge_op_by_name
from pteron.exir.edge.tensor_spec import dim_order_of_value


def clone_node(graph: torch.fx.Graph, value: torch.fx.Node) -> torch.fx.Node:
    """A new node at the insertion point of `graph` that copies the tensor `value`, in the same memory
    order.
    """
    clone = graph.call_function(
        edge_op_by_name("dim_order_ops", "_clone_dim_order", "default"),
        (value,),
        {"dim_order": list(dim_order_of_value(value.meta["val"]))},
    )
    clone.meta = {name: item for name, item in value.meta.items() if name not in ("spec", "delegation_tag")}
    return clone
