"""Copies of constants that a delegate wants to own while others read them too."""

from __future__ import annotations

import copy
from collections.abc import Collection

import torch
from torch.export.exported_program import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, OutputKind

from pteron.exir.backend.flat_calling_convention import argument_for
from pteron.exir.backend.partitioner import DELEGATION_TAG
from pteron.exir.backend.program_copy import validate

#: Inputs that a delegate can own: they are part of the program, not of a call.
OWNABLE_KINDS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
#: Outputs that are new values of the program's own state.
STATE_MUTATION_KINDS = tuple(
    kind for kind in OutputKind if kind.name in ("BUFFER_MUTATION", "PARAMETER_MUTATION")
)


def mutated_state(program: ExportedProgram) -> set[str]:
    """Names (targets) of the parameters and buffers that the program updates."""
    specs = program.graph_signature.output_specs
    return {spec.target for spec in specs if spec.kind in STATE_MUTATION_KINDS and spec.target is not None}


def duplicate_shared_constants(program: ExportedProgram, tags: Collection[str]) -> None:
    """Gives each tagged constant's readers outside its partition a copy of their own, in place.

    A copy is a further input of the program with the same target: the tensor exists once. State that the
    program updates is never copied. Tags that `tags` does not name must have been removed.

    Raises:
        RuntimeError: a user input is tagged, or a constant marked `no_copy` has readers outside its
            partition.
    """
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    mutated = mutated_state(program)
    for node in [node for node in program.graph.nodes if node.op == "placeholder"]:
        tag = node.meta.get(DELEGATION_TAG)
        if tag not in tags:
            continue
        spec = specs[node.name]
        if spec.kind not in OWNABLE_KINDS:
            raise RuntimeError(
                f"placeholder node for non-params, non-buffer, and non-tensor constants should not be "
                f"tagged: {node} "
                f"(tag {tag!r}, {spec.kind.name})"
            )
        if spec.target not in mutated:
            _duplicate_for_other_readers(program, node, tag)
    program.graph_module.recompile()


def duplicate_constants_of_tag(tagged_exported_program: ExportedProgram, tag: str) -> None:
    """As `duplicate_shared_constants`, for the constants of one partition; the program is valid afterwards.

    Raises:
        RuntimeError: as there.
    """
    duplicate_shared_constants(tagged_exported_program, (tag,))
    validate(tagged_exported_program)


def duplicate_constant_node(exported_program: ExportedProgram, candidate_node: str) -> set[str]:
    """Gives every reader but the first of the constant named `candidate_node` a copy; returns the copies'
    names.
    """
    found = [n for n in exported_program.graph.nodes if n.op == "placeholder" and n.name == candidate_node]
    if not found:
        return set()
    specs = {spec.arg.name: spec for spec in exported_program.graph_signature.input_specs}
    if specs[candidate_node].kind not in OWNABLE_KINDS:
        raise RuntimeError(
            f"placeholder node for non-params, non-buffer, and non-tensor constants should not be tagged: "
            f"{found[0]}"
        )
    copies = {_copy_for(exported_program, found[0], user).name for user in list(found[0].users)[1:]}
    exported_program.graph_module.recompile()
    validate(exported_program)
    return copies


def _duplicate_for_other_readers(program: ExportedProgram, node: torch.fx.Node, tag: str) -> None:
    others = [user for user in node.users if user.meta.get(DELEGATION_TAG) != tag]
    if others and node.meta.get("no_copy", False):
        raise RuntimeError(
            f"constant data node ({node}) is tagged with ({tag}) but has user ({others[0]}) which has tag "
            f"({others[0].meta.get(DELEGATION_TAG)}), and it is marked no_copy"
        )
    if len(others) == len(node.users) and others:
        # Nobody in the partition reads it, so the first reader takes the original.
        _retag(node, others.pop(0))
    for user in others:
        _retag(_copy_for(program, node, user), user)


def _retag(constant: torch.fx.Node, reader: torch.fx.Node) -> None:
    tag = reader.meta.get(DELEGATION_TAG)
    constant.meta.pop(DELEGATION_TAG, None)
    if tag is not None:
        constant.meta[DELEGATION_TAG] = tag


def _copy_for(program: ExportedProgram, node: torch.fx.Node, user: torch.fx.Node) -> torch.fx.Node:
    signature = program.graph_signature
    with program.graph.inserting_after(node):
        duplicate: torch.fx.Node = program.graph.placeholder(f"{node.name}_copy_0")
    # The graph makes the name unique, the argument of the generated function is named by the target.
    duplicate.target = duplicate.name
    duplicate.meta = dict(node.meta)
    user.replace_input_with(node, duplicate)
    position = next(i for i, spec in enumerate(signature.input_specs) if spec.arg.name == node.name)
    original: InputSpec = signature.input_specs[position]
    added = copy.copy(original)
    added.arg = argument_for(duplicate)
    signature.input_specs.insert(position + 1, added)
    if user.op == "output":
        for output in signature.output_specs:
            if getattr(output.arg, "name", None) == node.name:
                output.arg = argument_for(duplicate)
    return duplicate
