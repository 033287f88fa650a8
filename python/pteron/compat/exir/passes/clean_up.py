"""Passes that remove what nothing needs: unread nodes, assertions, copies, empty operands, unused
parameters.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch.ao.quantization.fx import _decomposed  # noqa: F401 -- registers quantized_decomposed
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx.passes.infra.pass_base import PassBase, PassResult

from pteron.exir.edge.exir_ops import exir_ops
from pteron.exir.passes.eliminate_dead_code import eliminate_dead_code
from pteron.exir.passes.export_pass import ExportPass
from pteron.exir.passes.remove_noops import is_same_layout

_QUANTIZED = torch.ops.quantized_decomposed
_EDGE_QUANTIZED = exir_ops.edge.quantized_decomposed

_DEQUANT_OPS = (
    _QUANTIZED.dequantize_per_tensor.default,
    _QUANTIZED.dequantize_per_channel.default,
    _EDGE_QUANTIZED.dequantize_per_tensor.default,
    _EDGE_QUANTIZED.dequantize_per_channel.default,
)
_QUANT_OPS = (
    _QUANTIZED.quantize_per_tensor.default,
    _QUANTIZED.quantize_per_channel.default,
    _EDGE_QUANTIZED.quantize_per_tensor.default,
    _EDGE_QUANTIZED.quantize_per_channel.default,
)


def dead_code_elimination_pass(graph_module: torch.fx.GraphModule) -> PassResult:
    """Remove nodes whose results nobody reads, in every graph below `graph_module`, in place. Calls of
    delegates stay: a delegate may own state.
    """
    for module in graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            eliminate_dead_code._function(module)
            module.recompile()
    return PassResult(graph_module, True)


def eliminate_dq_q(graph_module: torch.fx.GraphModule, dequant_nodes: list[torch.fx.Node]) -> None:
    """Let readers of a quantisation read what was dequantised with the same parameters just before, in
    place.
    """
    for node in dequant_nodes:
        if node.target not in _DEQUANT_OPS:
            raise AssertionError(f"{node.format_node()} does not dequantise")
        for user in list(node.users):
            source = node.args[0]
            if user.target in _QUANT_OPS and user.args[1:] == node.args[1:]:
                assert isinstance(source, torch.fx.Node)
                user.replace_all_uses_with(source)


class FoldRedundantDequantizeQuantizePass(PassBase):
    """Remove `quantize(dequantize(q))` with equal parameters, in place."""

    def call(self, graph_module: torch.fx.GraphModule) -> PassResult:
        """Run over one graph."""
        before = len(graph_module.graph.nodes)
        eliminate_dq_q(
            graph_module, [node for node in graph_module.graph.nodes if node.target in _DEQUANT_OPS]
        )
        graph_module.graph.eliminate_dead_code()
        modified = len(graph_module.graph.nodes) != before
        if modified:
            graph_module.recompile()
        return PassResult(graph_module, modified)


class _RemoveCopies(PassBase):
    _targets: tuple[Any, ...] = ()

    def call(self, graph_module: torch.fx.GraphModule) -> PassResult:
        """Run over one graph, in place."""
        dequantized = []
        for node in graph_module.graph.nodes:
            if node.op != "call_function" or node.target not in self._targets:
                continue
            source = node.args[0]
            if is_same_layout(source.meta.get("val"), node.meta.get("val")):
                if source.target in _DEQUANT_OPS:
                    dequantized.append(source)
                node.replace_all_uses_with(source)
        graph_module.graph.eliminate_dead_code()
        # Without the copy between them a dequantisation may meet its quantisation.
        eliminate_dq_q(graph_module, dequantized)
        graph_module.graph.eliminate_dead_code()
        graph_module.graph.lint()
        graph_module.recompile()
        return PassResult(graph_module, True)


class RemoveNoopPass(_RemoveCopies):
    """Remove `to.dtype` and slices that return what they were given."""

    _targets = (torch.ops.aten.to.dtype, torch.ops.aten.slice_copy.Tensor)


class RemoveToCopyPass(_RemoveCopies):
    """Remove `_to_copy` that changes neither dtype, device, shape nor strides."""

    _targets = (torch.ops.aten._to_copy.default,)


class _RemoveCalls(PassBase):
    _targets: frozenset[Any] = frozenset()

    def call(self, graph_module: torch.fx.GraphModule) -> PassResult:
        """Run over every graph below `graph_module`, in place."""
        for module in graph_module.modules():
            if not isinstance(module, torch.fx.GraphModule):
                continue
            for node in reversed(module.graph.nodes):
                if node.op == "call_function" and node.target in self._targets and not node.users:
                    module.graph.erase_node(node)
            module.graph.eliminate_dead_code()
            module.recompile()
        return PassResult(graph_module, True)


class RemoveGraphAssertsPass(_RemoveCalls):
    """Remove run-time assertions that export leaves in a graph."""

    _targets = frozenset(
        {
            torch.ops.aten._assert_async.msg,
            torch.ops.aten._assert_scalar.default,
            torch.ops.aten._assert_tensor_metadata.default,
            torch.ops.aten.sym_constrain_range.default,
            torch.ops.aten.sym_constrain_range_for_size.default,
        }
    )


class RemoveNonCoreAtenOpGraphAssertsPass(_RemoveCalls):
    """Remove assertions about the metadata of tensors, which core ATen has none of."""

    _targets = frozenset({torch.ops.aten._assert_tensor_metadata.default})


class PruneEmptyTensorsPass(PassBase):
    """Leave empty tensors out of `aten.cat`, in place; a `cat` of nothing but these becomes a `full`."""

    def call(self, graph_module: torch.fx.GraphModule) -> PassResult:
        """Run over one graph."""
        for node in list(graph_module.graph.nodes):
            if node.op == "call_function" and node.target is torch.ops.aten.cat.default:
                self.remove_empty_tensors_from_cat(graph_module, node)
        graph_module.graph.eliminate_dead_code()
        graph_module.graph.lint()
        graph_module.recompile()
        return PassResult(graph_module, True)

    def remove_empty_tensors_from_cat(
        self, graph_module: torch.fx.GraphModule, cat_node: torch.fx.Node
    ) -> None:
        """Do so for one `cat`."""
        operands: Any = cat_node.args[0]
        kept = [each for each in operands if not _is_empty(each)]
        cat_node.args = (kept, *cat_node.args[1:])
        if not kept:
            self._replace(graph_module, cat_node)

    def _replace(self, graph_module: torch.fx.GraphModule, node: torch.fx.Node) -> None:
        value = node.meta["val"]
        with graph_module.graph.inserting_after(node):
            full = graph_module.graph.call_function(
                exir_ops.edge.aten.full.default, (tuple(value.shape), 0), {"dtype": value.dtype}
            )
        full.meta = dict(node.meta)
        node.replace_all_uses_with(full)


def _is_empty(node: torch.fx.Node) -> bool:
    return any(isinstance(extent, int) and extent == 0 for extent in node.meta["val"].shape)


class NormalizeViewCopyBasePass(PassBase):
    """Let a `view_copy` of a `view_copy` read what the first one reads, in place."""

    _TARGETS = (torch.ops.aten.view_copy.default, exir_ops.edge.aten.view_copy.default)

    def call(self, graph_module: torch.fx.GraphModule) -> PassResult:
        """Run over every graph below `graph_module`."""
        changed = False
        for node in self._views(graph_module):
            base: Any = node.args[0]
            if self._is_view(base):
                node.args = (base.args[0], *node.args[1:])
                changed = True
        graph_module.recompile()
        return PassResult(graph_module, changed)

    def ensures(self, graph_module: torch.fx.GraphModule) -> None:
        """AssertionError where a view of a view is left."""
        for node in self._views(graph_module):
            if self._is_view(node.args[0]):
                raise AssertionError(f"{node.format_node()} still reads a view_copy")

    def _is_view(self, node: Any) -> bool:
        return isinstance(node, torch.fx.Node) and node.op == "call_function" and node.target in self._TARGETS

    def _views(self, graph_module: torch.fx.GraphModule) -> list[torch.fx.Node]:
        modules = [each for each in graph_module.modules() if isinstance(each, torch.fx.GraphModule)]
        return [node for module in modules for node in module.graph.nodes if self._is_view(node)]


def remove_unused_parameters_pass(ep: ExportedProgram) -> ExportedProgram:
    """Remove parameters that no node reads from graph, signature and state dict, in place."""
    signature = copy.deepcopy(ep.graph_signature)
    placeholders = {node.name: node for node in ep.graph.nodes if node.op == "placeholder"}
    kept = []
    for spec in signature.input_specs:
        node = placeholders.get(spec.arg.name)
        if node is None:
            raise RuntimeError(f"Invalid graph. No placeholder for {spec.arg.name} found in graph.")
        if spec.kind is not InputKind.PARAMETER or node.users:
            kept.append(spec)
            continue
        assert spec.target is not None
        ep.state_dict.pop(spec.target, None)
        ep.graph.erase_node(node)
    signature.input_specs = kept
    ep._graph_signature = signature
    ep.graph_module.recompile()
    return ep


__all__ = [
    "_DEQUANT_OPS",
    "_QUANT_OPS",
    "ExportPass",
    "FoldRedundantDequantizeQuantizePass",
    "NormalizeViewCopyBasePass",
    "PruneEmptyTensorsPass",
    "RemoveGraphAssertsPass",
    "RemoveNonCoreAtenOpGraphAssertsPass",
    "RemoveNoopPass",
    "RemoveToCopyPass",
    "dead_code_elimination_pass",
    "eliminate_dq_q",
    "remove_unused_parameters_pass",
]
