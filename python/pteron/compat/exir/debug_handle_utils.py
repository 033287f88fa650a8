"""The key of debug handles, and the captured operator that a node comes from."""

from __future__ import annotations

from torch.fx import Node

FROM_NODE_KEY = "from_node"
DEBUG_HANDLE_KEY = "debug_handle"
UNSET_DEBUG_HANDLE = 0


def get_greatest_ancestor_node_identifier(node: Node) -> str:
    """`name.graph` of the node that `node` was made from first, by its last chain of origins."""
    origin = node.meta[FROM_NODE_KEY][-1]
    while origin.from_node:
        origin = origin.from_node[-1]
    return f"{origin.name}.{origin.graph_id}"
