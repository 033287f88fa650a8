"""The specs of a graph, and when each of them is in use."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch._ops import OpOverload
from torch.export.graph_signature import ConstantArgument, ExportGraphSignature, InputKind
from torch.utils._pytree import tree_leaves

from pteron.compat.exir.error import internal_assert
from pteron.compat.exir.operator import is_inplace_variant, is_out_variant, output_to_aliased_input_map
from pteron.exir.edge.control_flow import is_control_flow
from pteron.exir.edge.delegate_call import is_delegate_call
from pteron.exir.edge.memory_nodes import alloc, view
from pteron.exir.edge.tensor_spec import TensorSpec
from pteron.exir.schema import TensorShapeDynamism

__all__ = [
    "collect_specs_from_nodes",
    "filter_nodes",
    "get_graph_input_tensors",
    "get_graph_output_tensors",
    "get_node_tensor_specs",
    "update_all_tensors_lifetime",
    "update_tensor_lifetime",
]


def filter_nodes(inputs: Iterable[Any]) -> list[torch.fx.Node]:
    """The nodes in a nest of lists, tuples and dicts, in order."""
    return [leaf for leaf in tree_leaves(list(inputs)) if isinstance(leaf, torch.fx.Node)]


def get_node_tensor_specs(node: torch.fx.Node) -> list[TensorSpec]:
    """The specs of what a node gives, of a view those of its operand; an empty list where it gives no
    tensor.
    """
    source: Any = node.args[0] if node.target is view else node
    stated = source.meta.get("spec")
    if isinstance(stated, TensorSpec):
        return [stated]
    return (
        [each for each in stated if isinstance(each, TensorSpec)] if isinstance(stated, (list, tuple)) else []
    )


@functools.cache
def _writes_out(op: OpOverload) -> bool:
    return is_out_variant(op._schema.name, op._schema.overload_name)


@functools.cache
def _writes_in_place(op: OpOverload) -> bool:
    return is_inplace_variant(op._schema.name, op._schema.overload_name)


def _is_out_var_node(node: torch.fx.Node) -> bool:
    """Whether a node writes into tensors that the caller gives."""
    return node.op == "call_function" and isinstance(node.target, OpOverload) and _writes_out(node.target)


def _overload_of(node: torch.fx.Node) -> OpOverload | None:
    target = node.target if isinstance(node.target, OpOverload) else getattr(node.target, "_op", None)
    return target if node.op == "call_function" and isinstance(target, OpOverload) else None


def _is_inplace_node(node: torch.fx.Node) -> bool:
    """Whether a node writes into its first operand."""
    op = _overload_of(node)
    return op is not None and _writes_in_place(op)


def _alias_inplace_result_specs(node: torch.fx.Node) -> None:
    """Give the results of an in-place operator the specs of the operands that they are. A result whose
    operand is not known keeps its own.
    """
    op = _overload_of(node)
    stated = node.meta.get("spec")
    if op is None or not isinstance(stated, (TensorSpec, list, tuple)):
        return
    specs = [stated] if isinstance(stated, TensorSpec) else list(stated)
    for result, position in output_to_aliased_input_map(op._schema).items():
        name = op._schema.arguments[position].name
        operand = node.args[position] if position < len(node.args) else node.kwargs.get(name)
        spec = operand.meta.get("spec") if isinstance(operand, torch.fx.Node) else None
        if isinstance(spec, TensorSpec) and result < len(specs):
            specs[result] = spec
    node.meta["spec"] = specs[0] if isinstance(stated, TensorSpec) else type(stated)(specs)


def _is_mutable_buffer(node: torch.fx.Node, graph_signature: ExportGraphSignature | None = None) -> bool:
    """Whether a placeholder stands for a buffer that the method updates; never without a signature."""
    if graph_signature is None or node.op != "placeholder":
        return False
    buffer = graph_signature.inputs_to_buffers.get(str(node.target))
    return buffer is not None and buffer in graph_signature.buffers_to_mutate.values()


def _get_mutable_buffer_specs(
    nodes: Iterable[torch.fx.Node], graph_signature: ExportGraphSignature | None
) -> set[TensorSpec]:
    return {
        spec
        for node in nodes
        if _is_mutable_buffer(node, graph_signature)
        for spec in get_node_tensor_specs(node)
    }


def _do_user_inputs_exist(graph_signature: ExportGraphSignature | None) -> bool:
    """Whether a method takes anything but numbers and texts from its caller."""
    if graph_signature is None:
        return False
    return any(
        not isinstance(each.arg, ConstantArgument) or not isinstance(each.arg.value, (int, float, bool, str))
        for each in graph_signature.input_specs
        if each.kind is InputKind.USER_INPUT
    )


def get_graph_input_tensors(
    nodes: Iterable[torch.fx.Node], graph_signature: ExportGraphSignature | None = None
) -> set[TensorSpec]:
    """The specs of placeholders, without buffers that the method updates."""
    return {
        spec
        for node in nodes
        if node.op == "placeholder" and not _is_mutable_buffer(node, graph_signature)
        for spec in get_node_tensor_specs(node)
    }


def get_graph_output_tensors(nodes: Iterable[torch.fx.Node]) -> set[TensorSpec]:
    """The specs of what the graph returns, as its output node states them."""
    return {spec for node in nodes if node.op == "output" for spec in get_node_tensor_specs(node)}


def _makes_memory(node: torch.fx.Node) -> bool:
    """Whether a node is of those that own or pass on memory in a graph of out variants."""
    return (
        node.op in ("placeholder", "output")
        or node.target in (alloc, view, operator.getitem)
        or is_control_flow(node)
        or is_delegate_call(node)
        or _is_inplace_node(node)
    )


def collect_specs_from_nodes(
    nodes: Iterable[torch.fx.Node],
    graph_signature: ExportGraphSignature | None = None,
    ignore_graph_input: bool = False,
    ignore_graph_output: bool = False,
    ignore_mutable_buffers: bool = False,
    ignore_const: bool = True,
    ignore_out_var_node: bool = True,
    dedup: bool = True,
    do_assertion: bool = True,
    ignore_dynamic_unbound_tensor: bool = True,
) -> Iterator[TensorSpec]:
    """The specs of nodes, in order. Results of in-place operators get the specs of their operands first.

    `ignore_graph_input`, `ignore_graph_output`, `ignore_mutable_buffers`: without what placeholders or the
    output node among `nodes` state. `ignore_const`: without what lies in the program's data.
    `ignore_out_var_node`: without out variants, whose results are their operands. `dedup`: each once.
    `ignore_dynamic_unbound_tensor`: without those whose extents have no bound.

    Raises:
        InternalError: with `do_assertion`, a node that owns no memory in a graph of out variants has a spec.
    """
    nodes = list(nodes)
    left_out: set[TensorSpec] = set()
    if ignore_graph_input:
        left_out |= get_graph_input_tensors(nodes, graph_signature)
    if ignore_graph_output:
        left_out |= get_graph_output_tensors(nodes)
    if ignore_mutable_buffers:
        left_out |= _get_mutable_buffer_specs(nodes, graph_signature)
    seen: set[TensorSpec] = set()
    for node in nodes:
        if node.op == "get_attr" or (ignore_out_var_node and _is_out_var_node(node)):
            continue
        if _is_inplace_node(node):
            _alias_inplace_result_specs(node)
        specs = get_node_tensor_specs(node)
        if specs and do_assertion:
            internal_assert(_makes_memory(node), f"Unexpected op {node.op}, target {node.target}")
        is_trained = node.meta.get("weight_has_gradient", False)
        for spec in specs:
            is_unbound = spec.shape_dynamism is TensorShapeDynamism.DYNAMIC_UNBOUND
            if (ignore_dynamic_unbound_tensor and is_unbound) or spec in left_out:
                continue
            if (ignore_const and spec.const and not is_trained) or (dedup and spec in seen):
                continue
            seen.add(spec)
            yield spec


def update_tensor_lifetime(
    node: torch.fx.Node,
    spec: TensorSpec,
    node_idx: int,
    max_node_idx: int,
    gs: ExportGraphSignature | None = None,
) -> None:
    """Let the lifetime of a spec cover its use by the node at `node_idx`: inputs live from 0, buffers that
    the method updates to `max_node_idx`.
    """
    first, last = spec.lifetime
    if node.op == "placeholder":
        first = 0
    elif first is None or first > node_idx:
        first = node_idx
    if _is_mutable_buffer(node, gs):
        last = max_node_idx
    elif last is None or last < node_idx:
        last = node_idx
    spec.lifetime = [first, last]


def update_all_tensors_lifetime(
    graph_module: torch.fx.GraphModule, graph_signature: ExportGraphSignature | None = None
) -> set[TensorSpec]:
    """Set the lifetime of every spec of one graph, in positions of its nodes; the specs."""
    specs: set[TensorSpec] = set()
    end = len(graph_module.graph.nodes) - 1
    for position, node in enumerate(graph_module.graph.nodes):
        used = collect_specs_from_nodes(
            filter_nodes(itertools.chain([node], node.args, node.kwargs.values())),
            graph_signature,
            ignore_const=False,
            ignore_out_var_node=False,
            dedup=False,
            do_assertion=False,
            ignore_dynamic_unbound_tensor=False,
        )
        for spec in used:
            update_tensor_lifetime(node, spec, position, end, graph_signature)
            specs.add(spec)
    _extend_storage_base_lifetimes(specs)
    return specs


def storage_bases(spec: TensorSpec) -> list[TensorSpec]:
    """A spec, then what it lies in, then what that lies in, and so on; InternalError for a circle."""
    chain = [spec]
    while (base := chain[-1].storage_base) is not None:
        internal_assert(base not in chain, "Circular storage_base relationship is not supported.")
        chain.append(base)
    return chain


def _extend_storage_base_lifetimes(specs: Iterable[TensorSpec]) -> None:
    """Let specs live as long as those that lie in them."""
    for spec in specs:
        bases = storage_bases(spec)[1:]
        if not bases:
            continue
        first, last = span(spec)
        for base in bases:
            base_first, base_last = span(base)
            base.lifetime = [min(base_first, first), max(base_last, last)]


def span(spec: TensorSpec) -> tuple[int, int]:
    """First and last position of a spec; InternalError before lifetimes are known."""
    first, last = spec.lifetime
    internal_assert(first is not None and last is not None, f"{spec} has no lifetime yet")
    assert first is not None
    assert last is not None
    return first, last
