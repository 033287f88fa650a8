"""Inputs of a method that a runtime cannot take, named by their place in the arguments."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, SymIntArgument, TensorArgument
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_unflatten


def input_problems(program: ExportedProgram) -> Iterator[str]:
    """What is wrong with the inputs of `program`, in order."""
    specs = [spec for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
    for place, spec in zip(input_places(program, len(specs)), specs, strict=True):
        argument = spec.arg
        if not isinstance(argument, (TensorArgument, SymIntArgument, ConstantArgument)):
            kind = type(argument).__name__.removesuffix("Argument")
            yield f"input {place} is of kind {kind}; inputs can be {_ACCEPTED}"


_ACCEPTED = (
    "tensors, integers, floats, truth values, strings and None, in tuples, lists, dicts and classes that are "
    "registered with torch.utils._pytree"
)


def input_places(program: ExportedProgram, count: int) -> list[str]:
    """Each flat input as the caller writes it: `args[0]['mask']`, `kwargs['scale']`."""
    structure = program.call_spec.in_spec
    if structure is None or structure.num_leaves != count:
        return [str(position) for position in range(count)]
    leaves, _ = tree_flatten_with_path(tree_unflatten(list(range(count)), structure))
    return [("kwargs" if path[0].idx else "args") + keystr(path[1:]) for path, _ in leaves]  # type: ignore[attr-defined]


def place_of_input(program: ExportedProgram, node: torch.fx.Node) -> str | None:
    """The place of a placeholder among the inputs; None for one that stands for stored data."""
    names = [
        getattr(spec.arg, "name", None)
        for spec in program.graph_signature.input_specs
        if spec.kind is InputKind.USER_INPUT
    ]
    if node.op != "placeholder" or node.name not in names:
        return None
    return input_places(program, len(names))[names.index(node.name)]
