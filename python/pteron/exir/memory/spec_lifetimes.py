"""Lifetimes of the tensors of a graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils._pytree import tree_leaves

from pteron.exir.edge.control_flow import Meaning, control_flow_of, is_control_flow
from pteron.exir.edge.tensor_spec import TensorSpec

# A node's `meta` key: specs that must keep their memory until the node has run, though it does not read them.
KEPT_SPECS = "kept_specs"


def specs_in(tree: Any) -> Iterator[TensorSpec]:
    """Every `TensorSpec` in a nest of lists and tuples."""
    for leaf in tree_leaves(tree, is_leaf=lambda node: isinstance(node, TensorSpec)):
        if isinstance(leaf, TensorSpec):
            yield leaf


def execution_order(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """Nodes in the order in which their instructions stand in a program.

    A control-flow operator appears twice, before and after the nodes of its bodies: what it reads, writes or
    carries from one iteration to the next is in use throughout.
    """
    order: list[torch.fx.Node] = []
    for node in graph.nodes:
        order.append(node)
        if is_control_flow(node):
            for body in control_flow_of(node).bodies:
                order.extend(execution_order(body.module.graph))
            order.append(node)
    return order


def spec_lifetimes(
    graph: torch.fx.Graph, always_alive: frozenset[TensorSpec]
) -> dict[TensorSpec, tuple[int, int]]:
    """(first, last) position in the execution order at which each tensor that owns memory is in use.

    A view counts as a use of what it views. Inputs live from position 0, returned tensors to the end, those
    in `always_alive` (state that a later run reads) throughout.
    """
    order = execution_order(graph)
    end = len(order)
    lifetimes: dict[TensorSpec, tuple[int, int]] = {}

    def use(tree: Any, position: int) -> None:
        for spec in specs_in(tree):
            first, last = lifetimes.get(spec.root, (position, position))
            lifetimes[spec.root] = (min(first, position), max(last, position))

    for position, node in enumerate(order):
        is_outermost = node.graph is graph
        if node.op == "placeholder":
            use(node.meta.get("spec"), 0 if is_outermost else position)
            continue
        use(node.meta.get("spec"), position)
        use(node.meta.get(KEPT_SPECS), position)
        if is_control_flow(node):
            for body in control_flow_of(node).bodies:
                for parameter in body.having(Meaning.CARRIED):
                    use(parameter.placeholder.meta.get("spec"), position)
        for operand in node.all_input_nodes:
            use(operand.meta.get("spec"), end if node.op == "output" and is_outermost else position)
    for spec in always_alive:
        lifetimes[spec.root] = (0, end)
    return lifetimes


def written_arguments(node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """The nodes that `node` passes for arguments which its operator's schema says are written: `self` of an
    in-place operator, `out` of an out variant.
    """
    if node.op != "call_function" or not isinstance(node.target, OpOverload):
        return
    for position, argument in enumerate(node.target._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        given = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
        for value in given if isinstance(given, (list, tuple)) else (given,):
            if isinstance(value, torch.fx.Node):
                yield value


@dataclass(frozen=True)
class PlaceholderRoles:
    """Specs of user inputs, of buffers that the method updates, and of everything else: constants."""

    inputs: frozenset[TensorSpec]
    state: frozenset[TensorSpec]
    constants: frozenset[TensorSpec]


def placeholder_roles(program: ExportedProgram) -> PlaceholderRoles:
    """The roles of the placeholders of `program`, whose updates are written back and which has specs."""
    graph = program.graph_module.graph
    updated = {operand for node in graph.nodes for operand in written_arguments(node)}
    inputs: set[TensorSpec] = set()
    state: set[TensorSpec] = set()
    constants: set[TensorSpec] = set()
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    for signature, node in zip(program.graph_signature.input_specs, placeholders, strict=True):
        if signature.kind is InputKind.USER_INPUT:
            role = inputs
        else:
            is_state = node in updated or any(spec.is_state for spec in specs_in(node.meta.get("spec")))
            role = state if is_state else constants
        role.update(specs_in(node.meta.get("spec")))
    return PlaceholderRoles(frozenset(inputs), frozenset(state), frozenset(constants))
