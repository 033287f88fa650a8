"""Whether two graphs are the same program, and where they first differ."""

from __future__ import annotations

from typing import Any

import torch
import torch.utils._pytree as pytree


def first_difference(left: torch.fx.GraphModule, right: torch.fx.GraphModule) -> str | None:
    """Describes the first place where `right` is another program than `left`; None if there is none.

    Node order, operators, positional and keyword arguments, and the graphs of control-flow branches are
    compared. Names and metadata are not.
    """
    left_nodes, right_nodes = list(left.graph.nodes), list(right.graph.nodes)
    left_index = {node: index for index, node in enumerate(left_nodes)}
    right_index = {node: index for index, node in enumerate(right_nodes)}
    for ours, theirs in zip(left_nodes, right_nodes, strict=False):
        if ours.op != theirs.op or (ours.op != "get_attr" and ours.target != theirs.target):
            return f"node {ours.name} ({_target(ours)}) became {theirs.name} ({_target(theirs)})"
        for kind in ("args", "kwargs"):
            before = _signature(getattr(ours, kind), left_index)
            after = _signature(getattr(theirs, kind), right_index)
            if before != after:
                changed = f"from {getattr(ours, kind)} to {getattr(theirs, kind)}"
                return f"{kind} of node {ours.name} changed {changed}"
        if ours.op == "get_attr":
            inner = _attribute_difference(left, ours, right, theirs)
            if inner is not None:
                return inner
    if len(left_nodes) != len(right_nodes):
        longer, nodes = (
            ("added", right_nodes) if len(right_nodes) > len(left_nodes) else ("removed", left_nodes)
        )
        return f"node {nodes[min(len(left_nodes), len(right_nodes))].name} was {longer}"
    return None


def is_identical_graph(graph_left: torch.fx.GraphModule, graph_right: torch.fx.GraphModule) -> bool:
    """Whether both graphs have the same nodes in the same order with the same arguments."""
    return first_difference(graph_left, graph_right) is None


def _target(node: torch.fx.Node) -> str:
    return str(getattr(node.target, "__name__", node.target))


def _signature(arguments: Any, index: dict[torch.fx.Node, int]) -> tuple[Any, ...]:
    leaves, spec = pytree.tree_flatten(arguments)
    comparable: list[tuple[str, object]] = []
    for leaf in leaves:
        if isinstance(leaf, torch.fx.Node):
            comparable.append(("node", index.get(leaf)))
        else:
            # The type too: 1, 1.0 and True are equal in Python and different arguments. repr makes NaN equal
            # itself.
            comparable.append((type(leaf).__name__, repr(leaf)))
    return (tuple(comparable), str(spec))


def _attribute_difference(
    left: torch.fx.GraphModule,
    left_node: torch.fx.Node,
    right: torch.fx.GraphModule,
    right_node: torch.fx.Node,
) -> str | None:
    ours, theirs = _attribute(left, left_node), _attribute(right, right_node)
    if isinstance(ours, torch.fx.GraphModule) and isinstance(theirs, torch.fx.GraphModule):
        inner = first_difference(ours, theirs)
        return None if inner is None else f"in {left_node.target}: {inner}"
    if type(ours) is not type(theirs):
        return f"attribute {left_node.target} ({type(ours).__name__}) became a {type(theirs).__name__}"
    return None


def _attribute(root: torch.nn.Module, node: torch.fx.Node) -> Any:
    found: Any = root
    for part in str(node.target).split("."):
        found = getattr(found, part)
    return found
