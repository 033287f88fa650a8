"""Add a constant tensor to a program."""

from __future__ import annotations

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument


def lift_constant(program: ExportedProgram, value: torch.Tensor, like: torch.fx.Node) -> torch.fx.Node:
    """Add `value` to the constants of `program` and return its placeholder, placed before the user inputs.

    `like` is a node of the top-level graph that has a fake tensor; the constant's fake twin joins its mode.
    """
    specs = program.graph_signature.input_specs
    index = next(
        (i for i, spec in enumerate(specs) if spec.kind in (InputKind.USER_INPUT, InputKind.TOKEN)),
        len(specs),
    )
    taken = {spec.target for spec in specs} | set(program.constants)
    number = len(taken)
    while f"_lifted_tensor_constant{number}" in taken:
        number += 1
    name = f"_lifted_tensor_constant{number}"

    graph = program.graph_module.graph
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    first_of_rest = next(node for node in graph.nodes if node.op != "placeholder")
    with graph.inserting_before(placeholders[index] if index < len(placeholders) else first_of_rest):
        node: torch.fx.Node = graph.placeholder(name)
    node.meta["val"] = fake_like(value, like)
    for key in ("stack_trace", "nn_module_stack"):
        if key in like.meta:
            node.meta[key] = like.meta[key]
    program.constants[name] = value
    specs.insert(
        index,
        InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(name=node.name), target=name, persistent=None),
    )
    return node


def fake_like(value: torch.Tensor, like: torch.fx.Node) -> torch.Tensor:
    """The fake twin of `value` in the mode of what `like` returns."""
    for candidate in torch.utils._pytree.tree_leaves(like.meta.get("val")):
        mode = getattr(candidate, "fake_mode", None)
        if mode is not None:
            fake: torch.Tensor = mode.from_tensor(value, static_shapes=True)
            return fake
    return value.to("meta")
