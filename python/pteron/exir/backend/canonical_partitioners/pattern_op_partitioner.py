"""Largest possible partitions from patterns, lists of nodes, or a check per node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner, Partition
from torch.fx.passes.operator_support import OperatorSupportBase, any_chain
from torch.fx.passes.utils.matcher_utils import SubgraphMatcher

from pteron.exir.backend.canonical_partitioners.group_partitioner import GroupBasedPartitioner


class ChosenNodes(OperatorSupportBase):
    """Supports the nodes it was given."""

    def __init__(self, nodes: Iterable[torch.fx.Node]) -> None:
        self.nodes = set(nodes)

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: torch.fx.Node) -> bool:
        """Whether `node` is one of them."""
        return node in self.nodes


def generate_pattern_op_partitions(
    graph_module: torch.fx.GraphModule,
    patterns: list[torch.fx.Graph] | None = None,
    partitions_list: list[list[torch.fx.Node]] | None = None,
    op_support: OperatorSupportBase | None = None,
    ignore_literals: bool = False,
) -> list[Partition]:
    """Partitions of nodes that match a pattern, are listed, or pass the check.

    Args:
        graph_module: where to look.
        patterns: edge graphs; the operators of every match are taken.
        partitions_list: further nodes to take.
        op_support: further nodes to take, by a check per node.
        ignore_literals: let a pattern match whatever its constant arguments are.
    """
    chosen: set[torch.fx.Node] = {node for nodes in partitions_list or [] for node in nodes}
    for pattern in patterns or []:
        for match in SubgraphMatcher(pattern, ignore_literals=ignore_literals).match(graph_module.graph):
            pairs = match.nodes_map.items()
            chosen.update(found for wanted, found in pairs if "placeholder" not in (wanted.op, found.op))
    return _propose(graph_module, _support(chosen, op_support))


def generate_partitions_from_list_of_nodes(
    graph_module: torch.fx.GraphModule,
    pattern_list: list[list[torch.fx.Node]] | None = None,
    op_support: OperatorSupportBase | None = None,
) -> list[Partition]:
    """Partitions of listed nodes, and of those that pass the check. One of the two has to be given."""
    if pattern_list is None and op_support is None:
        raise AssertionError("Did not give a pattern or OperatorSupportBase instance to partition with")
    return _propose(graph_module, _support({n for nodes in pattern_list or [] for n in nodes}, op_support))


def generate_grouped_partitions_from_list_of_nodes(
    graph_module: torch.fx.GraphModule,
    pattern_list: list[list[torch.fx.Node]] | None = None,
    op_support: OperatorSupportBase | None = None,
) -> list[Partition]:
    """Like `generate_partitions_from_list_of_nodes`, but nodes listed together stay together."""
    if pattern_list is None and op_support is None:
        raise AssertionError("Did not give a pattern or OperatorSupportBase instance to partition with")
    chosen = {node for nodes in pattern_list or [] for node in nodes}
    partitioner = GroupBasedPartitioner(
        graph_module,
        _support(chosen, op_support),
        node_groups=pattern_list,
        allows_single_node_partition=True,
    )
    return partitioner.propose_partitions()


def _support(chosen: set[torch.fx.Node], op_support: OperatorSupportBase | None) -> OperatorSupportBase:
    return ChosenNodes(chosen) if op_support is None else any_chain(op_support, ChosenNodes(chosen))


def _propose(graph_module: torch.fx.GraphModule, support: OperatorSupportBase) -> list[Partition]:
    proposer = CapabilityBasedPartitioner(graph_module, support, allows_single_node_partition=True)
    return proposer.propose_partitions()
