"""Specs of tensors: stated, and their shapes made numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram, ExportGraphSignature
from torch.fx.passes.infra.pass_base import PassBase, PassResult
from torch.utils._pytree import tree_map

from pteron.exir.edge.control_flow import ControlFlow, graph_modules
from pteron.exir.edge.exir_ops import exir_ops
from pteron.exir.edge.memory_nodes import view
from pteron.exir.edge.tensor_spec import TensorSpec
from pteron.exir.passes.constant_values import constant_values
from pteron.exir.passes.export_pass import ExportPass
from pteron.exir.passes.spec_prop_pass import SpecPropPass as StateSpecs
from pteron.exir.passes.sym_shape_eval import ConstraintBasedSymShapeEvalPass, HintBasedSymShapeEvalPass

__all__ = [
    "ConstraintBasedSymShapeEvalPass",
    "HintBasedSymShapeEvalPass",
    "InitializedMutableBufferPass",
    "ReplaceViewCopyWithViewPass",
    "SpecPropPass",
    "propagate_dynamic_shape",
]


class SpecPropPass(StateSpecs):
    """States specs as this package's pass does, and those of results in `meta["spec"]` of the output node."""

    def call(self, graph_module: torch.fx.GraphModule) -> PassResult:
        """Run over `graph_module` and the bodies of its control flow, in place."""
        result = super().call(graph_module)
        for module in graph_modules(graph_module):
            output = module.graph.output_node()
            output.meta["spec"] = tree_map(
                lambda value: value.meta.get("spec") if isinstance(value, torch.fx.Node) else None,
                output.args[0],
            )
        return result

    def _bodies(self, call: ControlFlow) -> None:
        # ExecuTorch's planner gives the parameters of a body places of their own.
        for body in call.bodies:
            self._run(body.module, {})

    def update_placeholder_tensor_specs(
        self, exported_program: ExportedProgram, graph_module: torch.fx.GraphModule
    ) -> None:
        """Mark the specs of parameters, constants and buffers that no run changes as constants."""
        constants = {node.name for node in constant_values(exported_program)}
        signature = exported_program.graph_signature
        for node in graph_module.graph.nodes:
            if node.op != "placeholder":
                continue
            if "spec" not in node.meta:
                raise RuntimeError(f"Placeholder node {node} missing meta['spec']")
            if node.name in constants or node.target in signature.inputs_to_parameters:
                node.meta["spec"].const = True


def propagate_dynamic_shape(dynamic_memory_planning_mode: Any = None) -> list[PassBase]:
    """The passes that state specs, with extents as numbers."""
    return [SpecPropPass(), HintBasedSymShapeEvalPass()]


class InitializedMutableBufferPass(ExportPass):
    """Marks buffers whose names contain one of `patterns` to start with their values in the model. They all
    do so in programs of this package, marked or not.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        super().__init__()
        self.patterns = list(patterns)

    def placeholder(self, name: str, arg: Any, meta: Any) -> Any:
        """An input of the graph."""
        if any(pattern in name for pattern in self.patterns):
            meta["et_init_buffer"] = True
        return super().placeholder(name, arg, meta)


def _is_mutable_buffer(node: torch.fx.Node, graph_signature: ExportGraphSignature) -> bool:
    """Whether a placeholder stands for a buffer that a run changes."""
    buffer = graph_signature.inputs_to_buffers.get(str(node.target)) if node.op == "placeholder" else None
    return buffer is not None and buffer in graph_signature.buffers_to_mutate.values()


_VIEW_OP = view
_VIEW_COPIES = (torch.ops.aten.view_copy.default, exir_ops.edge.aten.view_copy.default)


def _is_view_copy(node: torch.fx.Node) -> bool:
    """Whether a node is a `view_copy`, of ATen or of the edge dialect."""
    return node.op == "call_function" and node.target in _VIEW_COPIES


class _ViewSpec(TensorSpec):
    """The spec of a view of `base` in another shape: it lies where the base lies."""

    def __init__(self, base: TensorSpec, shape: Sequence[int | torch.SymInt]) -> None:
        super().__init__(base.dtype, shape, base.layout, base.is_sparse, base.const, base.requires_grad)
        self.base = base


class ReplaceViewCopyWithViewPass(PassBase):
    """Turns each `view_copy` that is not returned into a view of its operand, in place; specs must be
    stated, and no such copy may read another (`NormalizeViewCopyBasePass`).
    """

    def call(self, graph_module: torch.fx.GraphModule) -> PassResult:
        """Run over every graph below `graph_module`."""
        copies = list(self._copies(graph_module))
        for node in copies:
            node.meta["spec"] = _ViewSpec(node.args[0].meta["spec"], node.meta["val"].shape)
            node.target = _VIEW_OP
        for module in graph_module.modules():
            if isinstance(module, torch.fx.GraphModule):
                module.recompile()
        return PassResult(graph_module, bool(copies))

    def requires(self, graph_module: torch.fx.GraphModule) -> None:
        """AssertionError where a copy reads another."""
        for node in self._copies(graph_module):
            if _is_view_copy(node.args[0]):
                raise AssertionError(f"{node.format_node()} reads a view_copy")

    def ensures(self, graph_module: torch.fx.GraphModule) -> None:
        """AssertionError where a copy is left."""
        for node in self._copies(graph_module):
            raise AssertionError(f"{node.format_node()} is still a copy")

    def _copies(self, graph_module: torch.fx.GraphModule) -> Iterator[Any]:
        for module in graph_module.modules():
            for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
                if _is_view_copy(node) and all(user.op != "output" for user in node.users):
                    yield node
