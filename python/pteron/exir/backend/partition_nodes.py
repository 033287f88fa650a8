"""The nodes of each partition of one graph, checked and cut so that only tensors cross a delegate's
border.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.export.exported_program import ExportedProgram

from pteron.exir.backend.constant_duplication import OWNABLE_KINDS
from pteron.exir.backend.partitioner import DELEGATION_TAG, DelegationSpec

_logger = logging.getLogger(__name__)


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


_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)


@dataclass
class PartitionNodes:
    """One tag's nodes in one graph.

    Attributes:
        tag: the partition's tag.
        spec: where it goes.
        computing: its operator calls, sorted topologically; in graph order as long as nothing is cut.
        constants: tagged placeholders of the program's constants, in graph order.
    """

    tag: str
    spec: DelegationSpec
    computing: list[torch.fx.Node]
    constants: list[torch.fx.Node]


def collect_partitions(
    graph_module: torch.fx.GraphModule,
    program: ExportedProgram,
    tags: Mapping[str, DelegationSpec],
    *,
    is_branch: bool,
) -> list[PartitionNodes]:
    """The partitions of this graph in the order of `tags`; those that compute nothing are left out.

    Args:
        graph_module: the graph; nodes that compute numbers for others may be duplicated in it.
        program: the program it belongs to.
        tags: where each tag goes.
        is_branch: it is the body of a control-flow operator, whose inputs are nobody's constants.

    Raises:
        RuntimeError: the output or an input of the caller is tagged, or a list would have to cross the
            border.
        AssertionError: a partition would depend on itself.
    """
    found = {tag: PartitionNodes(tag, spec, [], []) for tag, spec in tags.items()}
    for node in graph_module.graph.nodes:
        tag = node.meta.get(DELEGATION_TAG)
        if tag not in found:
            continue
        if node.op == "output":
            raise RuntimeError(f"output node {node} should not be tagged (tag {tag!r})")
        if node.op == "placeholder":
            _check_constant(node, tag, program, is_branch)
            found[tag].constants.append(node)
        elif node.op in ("call_function", "call_method", "call_module"):
            found[tag].computing.append(node)
        # A get_attr node names a branch or a lowered module and moves with the operator that uses it.
    for partition in found.values():
        if partition.computing:
            _logger.debug("For tag %s, found nodes %s", partition.tag, partition.computing)
        else:
            _logger.debug("Did not find any nodes for tag %s", partition.tag)
    partitions = [partition for partition in found.values() if partition.computing]
    order = {node: index for index, node in enumerate(graph_module.graph.nodes)}
    for partition in partitions:
        _settle_list_items(partition)
        partition.computing.sort(key=order.__getitem__)
    partitions = [partition for partition in partitions if partition.computing]
    for partition in partitions:
        _recompute_numbers_outside(graph_module.graph, partition)
    refuse_cycles(graph_module.graph, {p.tag: p.computing for p in partitions})
    return partitions


def _check_constant(node: torch.fx.Node, tag: str, program: ExportedProgram, is_branch: bool) -> None:
    kinds = {spec.arg.name: spec.kind for spec in program.graph_signature.input_specs}
    if is_branch or kinds.get(node.name) not in OWNABLE_KINDS:
        place = ", an input of a control-flow branch" if is_branch else ""
        raise RuntimeError(
            f"placeholder node for non-params, non-buffer, and non-tensor constants should not be tagged: "
            f"{node} "
            f"(tag {tag!r}{place})"
        )


def _settle_list_items(partition: PartitionNodes) -> None:
    """Items of a list go with the operator that makes the list: a border carries tensors."""
    members = set(partition.computing)
    for node in list(partition.computing):
        if node.target is operator.getitem and node.args[0] not in members:
            members.discard(node)
        elif isinstance(node.meta.get("val"), (list, tuple)):
            for user in node.users:
                if user.op == "call_function" and user.target is operator.getitem:
                    members.add(user)
                elif user not in members:
                    raise RuntimeError(
                        f"node {node} (tag {partition.tag!r}) returns a list that {user} outside the "
                        "partition reads "
                        "as a whole; tag both or neither"
                    )
    partition.computing = list(members)


def _recompute_numbers_outside(graph: torch.fx.Graph, partition: PartitionNodes) -> None:
    """Delegates return tensors only: readers outside get their own copy of nodes that compute numbers."""
    members = set(partition.computing)
    twins: dict[torch.fx.Node, torch.fx.Node] = {}

    def outside(node: torch.fx.Node) -> torch.fx.Node:
        if node not in members or not isinstance(node.meta.get("val"), _SYMBOLIC):
            return node
        if node not in twins:
            for argument in node.all_input_nodes:
                outside(argument)
            with graph.inserting_after(node):
                twins[node] = graph.node_copy(node, outside)
            twins[node].meta = {k: v for k, v in node.meta.items() if k != DELEGATION_TAG}
        return twins[node]

    for node in partition.computing:
        if isinstance(node.meta.get("val"), _SYMBOLIC):
            for user in [user for user in node.users if user not in members and user not in twins.values()]:
                user.replace_input_with(node, outside(node))
    unread = [node for node in reversed(partition.computing) if node in twins and not node.users]
    for node in unread:
        partition.computing.remove(node)
        graph.erase_node(node)
