"""Partitions that depend on themselves: each is found before anything is lowered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch


def refuse_cycles(graph: torch.fx.Graph, partitions: Mapping[str, Sequence[torch.fx.Node]]) -> None:
    """Checks that every partition can run as one step.

    Raises:
        AssertionError: a path leaves a partition and comes back to it, directly or through other partitions.
            The text names the nodes on it.
    """
    group_of = {node: tag for tag, nodes in partitions.items() for node in nodes}
    position = {node: index for index, node in enumerate(graph.nodes)}
    # Vertices of the graph in which each partition is one vertex: a tag, or a node outside all of them.
    following: dict[str | torch.fx.Node, dict[str | torch.fx.Node, torch.fx.Node]] = {}
    waiting: dict[str | torch.fx.Node, int] = {}
    for node in graph.nodes:
        vertex = group_of.get(node, node)
        following.setdefault(vertex, {})
        waiting.setdefault(vertex, 0)
        for user in node.users:
            target = group_of.get(user, user)
            if target != vertex and target not in following[vertex]:
                following[vertex][target] = user
                waiting[target] = waiting.get(target, 0) + 1
    ready = [vertex for vertex, count in waiting.items() if count == 0]
    while ready:
        vertex = ready.pop()
        waiting.pop(vertex)
        for target in following[vertex]:
            waiting[target] -= 1
            if waiting[target] == 0:
                ready.append(target)
    stuck = [vertex for vertex in waiting if isinstance(vertex, str)]
    for tag in stuck:
        path = _path_back(tag, following, waiting)
        if path is not None:
            entries = sorted((node for node in path if node in position), key=position.__getitem__)
            raise AssertionError(
                f"Invalid partition, found dependency cycles: partition {tag!r} would need its own result, "
                "through "
                f"nodes {', '.join(node.name for node in entries)}; its nodes are "
                f"{', '.join(node.name for node in partitions[tag])}. Give the two sides different tags."
            )


def _path_back(
    start: str,
    following: Mapping[str | torch.fx.Node, Mapping[str | torch.fx.Node, torch.fx.Node]],
    remaining: Mapping[str | torch.fx.Node, int],
) -> list[torch.fx.Node] | None:
    """Nodes through which a path from `start` comes back to it, shortest first; None if there is no such
    path.
    """
    reached: dict[str | torch.fx.Node, list[torch.fx.Node]] = {start: []}
    frontier: list[str | torch.fx.Node] = [start]
    while frontier:
        nearest = frontier.pop(0)
        for target, entry in following[nearest].items():
            path = [*reached[nearest], entry]
            if target == start:
                return path
            if target in remaining and target not in reached:
                reached[target] = path
                frontier.append(target)
    return None
