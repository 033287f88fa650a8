"""Copies of exported programs whose nodes keep their names.

Copying a graph renames nodes that are called like a Python builtin: `input` becomes `input_1`, and the
signature, which refers to inputs and outputs by name, no longer fits. These functions put the names back.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable

import torch
from torch.export.exported_program import ExportedProgram


def deep_copy(program: ExportedProgram) -> ExportedProgram:
    """A copy that shares nothing with `program`, weights included."""
    return with_names_of(program, copy.deepcopy(program))


def copy_sharing_tensors(program: ExportedProgram) -> ExportedProgram:
    """A copy with a graph and a signature of its own, and the tensors of `program`."""
    return rebuilt(program, dict(program.state_dict))


def rebuilt(program: ExportedProgram, state_dict: dict[str, torch.Tensor]) -> ExportedProgram:
    """A copy with a graph and a signature of its own, other parameters and buffers, and the same lifted
    constants.
    """
    graph_module = copy.deepcopy(program.graph_module)
    _restore(program.graph.nodes, graph_module.graph.nodes)
    return ExportedProgram(
        root=graph_module,
        graph=graph_module.graph,
        graph_signature=copy.deepcopy(program.graph_signature),
        state_dict=state_dict,
        range_constraints=dict(program.range_constraints),
        module_call_graph=copy.deepcopy(program.module_call_graph),
        example_inputs=None,
        constants=dict(program.constants),
        verifiers=list(program.verifiers),
    )


def with_names_of(program: ExportedProgram, duplicate: ExportedProgram) -> ExportedProgram:
    """`duplicate`, an unchanged copy of `program`, with its nodes named as in `program`."""
    _restore(program.graph.nodes, duplicate.graph.nodes)
    return duplicate


def _restore(originals: Iterable[torch.fx.Node], copies: Iterable[torch.fx.Node]) -> None:
    before, after = list(originals), list(copies)
    # A backend's own way of copying may have changed the graph; then its names are its own affair.
    if [node.op for node in before] != [node.op for node in after]:
        return
    for node, twin in zip(before, after, strict=True):
        twin.name = node.name
