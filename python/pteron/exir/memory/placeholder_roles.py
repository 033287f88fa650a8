"""What the placeholders of a method are to memory planning."""

from __future__ import annotations

from dataclasses import dataclass

from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from pteron.exir.edge.tensor_spec import TensorSpec
from pteron.exir.edge.written_arguments import written_arguments
from pteron.exir.memory.spec_lifetimes import specs_in


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
