"""Programs called with the flat list of their arguments, whatever structure the exported module had.

A delegate call has a flat list of inputs and a flat list of outputs. Where the exported module took dicts,
keyword arguments or nested tuples, the caller flattens and this twin of the program receives the leaves.
"""

from __future__ import annotations

import copy

import torch
import torch.utils._pytree as pytree
from torch.export.exported_program import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ArgumentSpec,
    ConstantArgument,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
)


def argument_for(node: torch.fx.Node) -> ArgumentSpec:
    """The signature entry for a node, by the kind of value in its `val` metadata."""
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        return TensorArgument(name=node.name)
    if isinstance(value, torch.SymInt):
        return SymIntArgument(name=node.name)
    if isinstance(value, torch.SymFloat):
        return SymFloatArgument(name=node.name)
    if isinstance(value, torch.SymBool):
        return SymBoolArgument(name=node.name)
    return ConstantArgument(name=node.name, value=value)


def call_signature(program: ExportedProgram) -> tuple[pytree.TreeSpec, pytree.TreeSpec]:
    """The structures of `((args), {kwargs})` and of the result."""
    signature = program.module_call_graph[0].signature
    if signature is None or program.module_call_graph[0].fqn != "":
        raise ValueError(
            "the program has no call signature for its root module; was it made by torch.export?"
        )
    return signature.in_spec, signature.out_spec


def is_flat(program: ExportedProgram) -> bool:
    """Whether positional leaves are all it takes, and the result is one leaf or a list or tuple of leaves."""
    in_spec, out_spec = call_signature(program)
    count = in_spec.num_leaves
    flat_in = pytree.tree_structure((tuple(range(count)), {}))
    flat_outs = [pytree.tree_structure(0)]
    flat_outs += [pytree.tree_structure(kind(range(out_spec.num_leaves))) for kind in (tuple, list)]
    return in_spec == flat_in and out_spec in flat_outs


def flat_call_graph(input_count: int, output_count: int) -> list[ModuleCallEntry]:
    """The call graph of a program that takes `input_count` positional leaves and returns a list of leaves."""
    signature = ModuleCallSignature(
        inputs=[],
        outputs=[],
        in_spec=pytree.tree_structure((tuple(range(input_count)), {})),
        out_spec=pytree.tree_structure(list(range(output_count))),
    )
    return [ModuleCallEntry(fqn="", signature=signature)]


def with_flat_calling_convention(program: ExportedProgram) -> ExportedProgram:
    """The same program, sharing graph and tensors, called with leaves and returning a list of leaves."""
    in_spec, out_spec = call_signature(program)
    flat = copy.copy(program)
    flat._module_call_graph = flat_call_graph(in_spec.num_leaves, out_spec.num_leaves)
    flat._example_inputs = None
    return flat
