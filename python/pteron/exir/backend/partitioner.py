"""Which parts of a program go to which backend: the partitioner's contract."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch.export.exported_program import ExportedProgram

from pteron.exir.backend.backend_details import enforcedmethod
from pteron.exir.backend.compile_spec import CompileSpec

#: Key of `node.meta` that says which partition a node belongs to.
DELEGATION_TAG = "delegation_tag"


class DelegationSpec(NamedTuple):
    """A backend, by class name, and its settings. By itself it stands for "the whole graph goes there"."""

    backend_id: str
    compile_specs: list[CompileSpec]


@dataclass
class PartitionResult:
    """What a partitioner returns.

    Attributes:
        tagged_exported_program: the program it was given, with `node.meta["delegation_tag"]` set on nodes to
            lower.
        partition_tags: for each tag, where its nodes go. Each tag becomes one delegate call.
    """

    tagged_exported_program: ExportedProgram
    partition_tags: dict[str, DelegationSpec]


class Partitioner(ABC):
    """Tags the nodes that a backend takes. It may set metadata and nothing else.

    The program it gets has fake tensors for parameters and buffers: shapes and dtypes are there, values are
    not.
    """

    def __init__(self, spec: Mapping[str | int | float | bool, object] = MappingProxyType({})) -> None:
        self._spec = spec

    def __call__(self, exported_program: ExportedProgram) -> PartitionResult:
        return self.partition(exported_program)

    @property
    def spec(self) -> Mapping[str | int | float | bool, object]:
        """Free-form settings, as given to the constructor."""
        return getattr(self, "_spec", MappingProxyType({}))

    @enforcedmethod
    @abstractmethod
    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Tags nodes and says where each tag goes."""

    def ops_to_not_decompose(
        self, ep: ExportedProgram
    ) -> tuple[list[torch._ops.OpOverload], Callable[[torch.fx.Node], bool] | None]:
        """Operators that `to_edge_transform_and_lower` keeps whole for this backend.

        Returns the operators, and a filter that says for a node whether to keep that one, None for all.
        """
        return [], None

    def transform_for_pre_decomposition(self, exported_program: ExportedProgram) -> ExportedProgram:
        """Rewrites the ATen program before it is decomposed; `to_edge_transform_and_lower` calls it."""
        return exported_program


class WholeGraphPartitioner(Partitioner):
    """Sends everything to one backend: every operator, the constants they read and the buffers they
    update.
    """

    def __init__(self, delegation_spec: DelegationSpec) -> None:
        super().__init__()
        self.delegation_spec = delegation_spec

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        tag = self.delegation_spec.backend_id
        has_nodes = False
        for node in exported_program.graph.nodes:
            if node.op == "call_function":
                node.meta[DELEGATION_TAG] = tag
                has_nodes = True
        owned = {
            spec.arg.name for spec in exported_program.graph_signature.input_specs if spec.target is not None
        }
        for node in exported_program.graph.nodes:
            if node.op == "placeholder" and node.name in owned and node.users:
                node.meta[DELEGATION_TAG] = tag
        return PartitionResult(exported_program, {tag: self.delegation_spec} if has_nodes else {})


def as_partitioner(choice: object) -> Partitioner:
    """A partitioner from a `Partitioner`, a subclass of it, or a `DelegationSpec`.

    Raises:
        TypeError: it is none of these.
    """
    if isinstance(choice, Partitioner):
        return choice
    if isinstance(choice, type) and issubclass(choice, Partitioner):
        return choice()
    if isinstance(choice, DelegationSpec):
        return WholeGraphPartitioner(choice)
    raise TypeError(
        f"expected a Partitioner, a Partitioner class or a DelegationSpec, got {choice!r}; "
        "a DelegationSpec sends the whole graph to its backend"
    )
