"""Partitions that never tear apart nodes which belong together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.fx.node import _get_qualified_name
from torch.fx.passes.infra.partitioner import Partition
from torch.fx.passes.operator_support import OperatorSupportBase

from pteron.exir.backend.partition_report import REPORTED_REASON


@dataclass
class _Cluster:
    """Nodes that form one partition, with bit sets over node positions.

    `members`, and all nodes that lie `before` and `after` it in the graph's partial order.
    """

    members: int
    before: int
    after: int


class GroupBasedPartitioner:
    """Proposes partitions from single nodes and from groups that stay whole, merging wherever that makes no
    cycle.

    Args:
        graph_module: the graph.
        operator_support: which nodes may be taken.
        node_groups: nodes to keep together. A member that would make its group depend on itself is left out
            of it.
        allows_single_node_partition: keep partitions that hold a single operator.
        non_compute_ops: names of targets that do not count as operators.
        allowed_single_node_partition_ops: names of targets that may be alone all the same. Names are as nodes
            print them (`aten.add.Tensor`) or with their module (`torch.ops.aten.view`).

    Raises:
        ValueError: a node is in two groups.
    """

    def __init__(
        self,
        graph_module: torch.fx.GraphModule,
        operator_support: OperatorSupportBase,
        allows_single_node_partition: bool = False,
        non_compute_ops: Sequence[str] | None = None,
        allowed_single_node_partition_ops: Sequence[str] | None = None,
        node_groups: list[list[torch.fx.Node]] | None = None,
    ) -> None:
        self.graph_module = graph_module
        self.operator_support = operator_support
        self.allows_single_node_partition = allows_single_node_partition
        self.non_compute_ops = set(non_compute_ops or ()) | {"getitem"}
        self.allowed_single_node_partition_ops = set(allowed_single_node_partition_ops or ())
        self.node_groups = node_groups or []
        for node, count in Counter(node for group in self.node_groups for node in set(group)).items():
            if count > 1:
                raise ValueError(f"Node {node} exists in multiple groups.")
        self._nodes = list(graph_module.graph.nodes)
        self._position = {node: index for index, node in enumerate(self._nodes)}

    def propose_partitions(self) -> list[Partition]:
        """The partitions; ids count from 0, from the end of the graph, as those of PyTorch's partitioner."""
        clusters = self._initial_clusters()
        merged: list[_Cluster] = []
        # From the end of the graph, each with what lies before it, as PyTorch's own partitioner goes: where
        # merging one pair rules out another, both choose the same.
        while clusters:
            cluster = clusters.pop()
            for other in reversed(list(clusters)):
                if _can_merge(cluster, other):
                    clusters.remove(other)
                    cluster = self._merge(cluster, other, [*merged, *clusters])
            merged.append(cluster)
        found = [self._members(cluster) for cluster in merged]
        kept = [nodes for nodes in found if self._is_worth_it(nodes)]
        for nodes in found:
            if nodes not in kept:
                for node in nodes:
                    node.meta.setdefault(REPORTED_REASON, "its partition would hold a single operator")
        return [Partition(id=index, nodes=nodes) for index, nodes in enumerate(kept)]

    def _initial_clusters(self) -> list[_Cluster]:
        before, after = self._reachability()
        modules = dict(self.graph_module.named_modules())
        supported = [
            node
            for node in self._nodes
            if node.op not in ("placeholder", "output")
            and self.operator_support.is_node_supported(modules, node)
        ]
        single = {node: _Cluster(1 << self._position[node], before[node], after[node]) for node in supported}
        clusters: list[_Cluster] = []
        grouped: set[torch.fx.Node] = set()
        for group in self.node_groups:
            members = sorted(
                (n for n in set(group) if n in single and n not in grouped), key=self._position.__getitem__
            )
            whole: _Cluster | None = None
            for node in members:
                if whole is None:
                    whole = single[node]
                elif _can_merge(whole, single[node]):
                    others = [
                        *clusters,
                        *(c for n, c in single.items() if n not in grouped and n is not node),
                    ]
                    whole = self._merge(whole, single[node], others)
                else:
                    continue
                grouped.add(node)
            if whole is not None:
                clusters.append(whole)
        clusters += [cluster for node, cluster in single.items() if node not in grouped]
        return sorted(clusters, key=lambda cluster: cluster.members.bit_length())

    def _reachability(self) -> tuple[dict[torch.fx.Node, int], dict[torch.fx.Node, int]]:
        before: dict[torch.fx.Node, int] = {}
        after: dict[torch.fx.Node, int] = {}
        for node in self._nodes:
            before[node] = 0
            for argument in node.all_input_nodes:
                before[node] |= before[argument] | (1 << self._position[argument])
        for node in reversed(self._nodes):
            after[node] = 0
            for user in node.users:
                after[node] |= after[user] | (1 << self._position[user])
        return before, after

    def _merge(self, left: _Cluster, right: _Cluster, others: list[_Cluster]) -> _Cluster:
        members = left.members | right.members
        whole = _Cluster(
            members, (left.before | right.before) & ~members, (left.after | right.after) & ~members
        )
        # Whoever lies before a part now lies before the whole, and so before everything after it.
        for other in others:
            if other.members & whole.before:
                other.after |= members | whole.after
            if other.members & whole.after:
                other.before |= members | whole.before
        return whole

    def _members(self, cluster: _Cluster) -> list[torch.fx.Node]:
        return [node for node in self._nodes if cluster.members >> self._position[node] & 1]

    def _is_worth_it(self, nodes: list[torch.fx.Node]) -> bool:
        if self.allows_single_node_partition:
            return True
        names = [_names(node) for node in nodes if node.op == "call_function"]
        computing = [each for each in names if not each & self.non_compute_ops]
        return len(computing) > 1 or any(each & self.allowed_single_node_partition_ops for each in computing)


def _can_merge(left: _Cluster, right: _Cluster) -> bool:
    """Whether no third node lies between the two."""
    both = left.members | right.members
    return not ((left.after & right.before) | (right.after & left.before)) & ~both


def _names(node: torch.fx.Node) -> set[str]:
    names = {str(getattr(node.target, "__name__", node.target))}
    return names | {_get_qualified_name(node.target)} if callable(node.target) else names
