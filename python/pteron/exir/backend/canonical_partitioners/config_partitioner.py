"""Partitions described operator by operator: a name, a constraint, and the nodes that go with it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

import torch
from torch.export.exported_program import ExportedProgram
from torch.fx.passes.infra.partitioner import Partition

from pteron.exir.backend.canonical_partitioners.pattern_op_partitioner import (
    generate_grouped_partitions_from_list_of_nodes,
)
from pteron.exir.backend.constant_tagging import is_constant_data
from pteron.exir.backend.partitioner import (
    DELEGATION_TAG,
    DelegationSpec,
    Partitioner,
    PartitionResult,
)


def format_target_name(target_name: str) -> str:
    """An operator's name without its namespace: `aten.linear.default` is `linear.default`."""
    parts = target_name.split(".")
    return ".".join(parts[1:] if len(parts) > 2 else parts)


class PartitionerConfig(ABC):
    """How one operator is recognised and what it takes along."""

    #: Name without namespace, such as ``linear.default``; a class attribute or a property.
    target_name: str

    @abstractmethod
    def check_constraints(self, node: torch.fx.Node, ep: ExportedProgram) -> bool:
        """Whether the backend takes this node."""

    @abstractmethod
    def get_original_aten(self) -> torch._ops.OpOverload | None:
        """The ATen operator to keep whole on the way to edge dialect, None if there is none."""

    @abstractmethod
    def get_partition(self, node: torch.fx.Node, ep: ExportedProgram) -> list[torch.fx.Node]:
        """The node and all that has to go with it, its constants included."""


class ConfigerationBasedPartitioner(Partitioner):
    """Partitions the nodes that its configurations recognise. (The spelling is the one that users import.)"""

    def __init__(
        self, delegation_spec: DelegationSpec, partitioner_configs: Iterable[PartitionerConfig]
    ) -> None:
        super().__init__()
        self.delegation_spec = delegation_spec
        self.target_partitioner_configs: dict[str, PartitionerConfig] = {}
        for config in partitioner_configs:
            known = self.target_partitioner_configs.setdefault(config.target_name, config)
            if known is not config:
                raise RuntimeError(
                    f"PartitionerConfig: {config} and {known} have the same target_name: {config.target_name}"
                )

    def ops_to_not_decompose(
        self, ep: ExportedProgram
    ) -> tuple[list[torch._ops.OpOverload], Callable[[torch.fx.Node], bool] | None]:
        """The operators of its configurations, each where the constraints hold."""

        def is_kept(node: torch.fx.Node) -> bool:
            config = self._config_for(node)
            return (
                config is not None
                and config.get_original_aten() is not None
                and config.check_constraints(node, ep)
            )

        originals = [config.get_original_aten() for config in self.target_partitioner_configs.values()]
        return [original for original in originals if original is not None], is_kept

    def get_matched_nodes_from_configs(self, ep: ExportedProgram) -> list[list[torch.fx.Node]]:
        """Groups of nodes; those that overlap are one group. Constants belong to the first group that names
        them.
        """
        groups: list[set[torch.fx.Node]] = []
        for node in ep.graph.nodes:
            config = self._config_for(node)
            if config is None or not config.check_constraints(node, ep):
                continue
            taken = set().union(*groups)
            group = {
                member
                for member in config.get_partition(node, ep)
                if not (member in taken and is_constant_data(ep, member))
            }
            overlapping = [known for known in groups if known & group]
            groups = [known for known in groups if not known & group]
            if group:
                groups.append(group.union(*overlapping))
        return [list(group) for group in groups]

    def generate_partitions(self, ep: ExportedProgram) -> list[Partition]:
        """The groups, merged where that makes no cycle."""
        return generate_grouped_partitions_from_list_of_nodes(
            ep.graph_module, self.get_matched_nodes_from_configs(ep)
        )

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        groups = self.get_matched_nodes_from_configs(exported_program)
        partitions = generate_grouped_partitions_from_list_of_nodes(exported_program.graph_module, groups)
        tags: dict[str, DelegationSpec] = {}
        for partition in partitions:
            tag = f"tag{partition.id}"
            for node in partition.nodes:
                node.meta[DELEGATION_TAG] = tag
            tags[tag] = self.delegation_spec
        for group in groups:
            self._tag_constants(exported_program, group)
        return PartitionResult(exported_program, tags)

    def _tag_constants(self, program: ExportedProgram, group: list[torch.fx.Node]) -> None:
        tags = [node.meta[DELEGATION_TAG] for node in group if DELEGATION_TAG in node.meta]
        for node in group:
            if tags and is_constant_data(program, node):
                node.meta[DELEGATION_TAG] = min(tags)

    def _config_for(self, node: torch.fx.Node) -> PartitionerConfig | None:
        if node.op != "call_function":
            return None
        name = str(getattr(node.target, "__name__", node.target))
        return self.target_partitioner_configs.get(format_target_name(name))
