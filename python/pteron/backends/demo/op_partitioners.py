"""Partitioners for teaching: by operator, with attributes, everything, and operators kept whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, final

import torch
from torch.export.exported_program import ExportedProgram
from torch.fx.passes.operator_support import OperatorSupportBase, any_chain

from pteron.backends.demo.compiler_demo_backend import BackendWithCompilerDemo
from pteron.backends.demo.executor_backend import ExecutorBackend
from pteron.exir.backend.canonical_partitioners.pattern_op_partitioner import (
    generate_pattern_op_partitions,
)
from pteron.exir.backend.compile_spec import CompileSpec
from pteron.exir.backend.constant_tagging import is_constant_data
from pteron.exir.backend.partitioner import (
    DELEGATION_TAG,
    DelegationSpec,
    Partitioner,
    PartitionResult,
)
from pteron.exir.edge.control_flow import graph_modules
from pteron.exir.edge.exir_ops import exir_ops


class AllOperatorSupport(OperatorSupportBase):
    """Supports calls of all operators."""

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: torch.fx.Node) -> bool:
        return node.op == "call_function"


class _Operators(OperatorSupportBase):
    """Supports calls of the operators in `targets`."""

    targets: tuple[Any, ...] = ()

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: torch.fx.Node) -> bool:
        return node.op == "call_function" and node.target in self.targets


class AddOperatorSupport(_Operators):
    """Supports add of two tensors."""

    targets = (exir_ops.edge.aten.add.Tensor,)


class MatmulOperatorSupport(_Operators):
    """Supports mm, the product of two matrices."""

    targets = (exir_ops.edge.aten.mm.default,)


#: Operators that `NonDecompTestPartitioner` keeps whole; in the edge dialect.
OPS_TO_NOT_DECOMPOSE = [
    torch.ops.aten.linear.default,
    torch.ops.aten.scaled_dot_product_attention.default,
    torch.ops.aten.upsample_nearest2d.vec,
]
EDGE_OPS_NOT_DECOMPOSED = [
    exir_ops.edge.aten.linear.default,
    exir_ops.edge.aten.scaled_dot_product_attention.default,
    exir_ops.edge.aten.upsample_nearest2d.vec,
]


class OpsToNotDecomposeOperatorSupport(_Operators):
    """Supports the operators that `NonDecompTestPartitioner` keeps whole."""

    targets = tuple(EDGE_OPS_NOT_DECOMPOSED)


def _tag(
    graph_module: torch.fx.GraphModule, support: OperatorSupportBase, spec: DelegationSpec, prefix: str = ""
) -> dict[str, DelegationSpec]:
    tags = {}
    for partition in generate_pattern_op_partitions(graph_module, op_support=support):
        tag = f"{prefix}tag{partition.id}"
        tags[tag] = spec
        for node in partition.nodes:
            node.meta[DELEGATION_TAG] = tag
    return tags


def _tag_arguments(program: ExportedProgram) -> None:
    for node in program.graph.nodes:
        if node.op != "call_function" or DELEGATION_TAG not in node.meta:
            continue
        for argument in node.all_input_nodes:
            if argument.op == "get_attr" or is_constant_data(program, argument):
                argument.meta[DELEGATION_TAG] = node.meta[DELEGATION_TAG]


@final
class AddMulPartitionerDemo(Partitioner):
    """Sends add and mm (matrix, not elementwise, multiplication) to `BackendWithCompilerDemo`, branches
    included.
    """

    def __init__(self) -> None:
        super().__init__()
        self.op_support = any_chain(AddOperatorSupport(), MatmulOperatorSupport())
        self.delegation_spec = DelegationSpec(
            BackendWithCompilerDemo.__name__, [CompileSpec("max_value", bytes([4]))]
        )

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        tags: dict[str, DelegationSpec] = {}
        for depth, module in enumerate(graph_modules(exported_program.graph_module)):
            prefix = f"branch{depth}_" if depth else ""
            tags |= _tag(module, self.op_support, self.delegation_spec, prefix)
        return PartitionResult(exported_program, tags)


@final
class AddAttributePartitionerDemo(Partitioner):
    """Sends add, with the constants it reads, to `BackendWithCompilerDemo`."""

    def __init__(self) -> None:
        super().__init__()
        self.op_support = AddOperatorSupport()
        self.delegation_spec = DelegationSpec(BackendWithCompilerDemo.__name__, [])

    def partition(self, edge_exported_program: ExportedProgram) -> PartitionResult:
        tags = _tag(edge_exported_program.graph_module, self.op_support, self.delegation_spec)
        _tag_arguments(edge_exported_program)
        return PartitionResult(edge_exported_program, tags)


@final
class AllNodesPartitionerDemo(Partitioner):
    """Sends every operator, with the constants it reads, to `ExecutorBackend`."""

    def __init__(self) -> None:
        super().__init__()
        self.op_support = AllOperatorSupport()
        self.delegation_spec = DelegationSpec(ExecutorBackend.__name__, [])

    def partition(self, edge_exported_program: ExportedProgram) -> PartitionResult:
        tags = _tag(edge_exported_program.graph_module, self.op_support, self.delegation_spec)
        _tag_arguments(edge_exported_program)
        return PartitionResult(edge_exported_program, tags)


@final
class NonDecompTestPartitioner(Partitioner):
    """Keeps linear (with bias), attention and upsampling whole and sends each to a delegate of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.supported_non_decomposed_edge_ops = EDGE_OPS_NOT_DECOMPOSED
        self.op_support = any_chain(OpsToNotDecomposeOperatorSupport())
        self.delegation_spec = DelegationSpec(
            BackendWithCompilerDemo.__name__, [CompileSpec("max_value", bytes([4]))]
        )

    def ops_to_not_decompose(
        self, ep: ExportedProgram
    ) -> tuple[list[torch._ops.OpOverload], Callable[[torch.fx.Node], bool] | None]:
        def is_kept(node: torch.fx.Node) -> bool:
            # Of these operators it wants those with three arguments: for linear, the ones with a bias.
            return node.target not in OPS_TO_NOT_DECOMPOSE or len(node.args) == 3

        return OPS_TO_NOT_DECOMPOSE, is_kept

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        tags: dict[str, DelegationSpec] = {}
        for module in graph_modules(exported_program.graph_module):
            for node in module.graph.nodes:
                if node.op == "call_function" and node.target in self.supported_non_decomposed_edge_ops:
                    tag = f"tag{len(tags)}"
                    node.meta[DELEGATION_TAG] = tag
                    tags[tag] = self.delegation_spec
        return PartitionResult(exported_program, tags)
