"""Tags for constants and buffers, derived from the tags of the operators that read them."""

from __future__ import annotations

import logging

import torch
from torch.export.exported_program import ExportedProgram

from pteron.exir.backend.constant_duplication import OWNABLE_KINDS, mutated_state
from pteron.exir.backend.partitioner import DELEGATION_TAG

_log = logging.getLogger(__name__)


def is_constant_data(program: ExportedProgram, node: torch.fx.Node) -> bool:
    """Whether `node` is a parameter, a buffer or a lifted constant of `program`."""
    kinds = {spec.arg.name: spec.kind for spec in program.graph_signature.input_specs}
    return node.op == "placeholder" and kinds.get(node.name) in OWNABLE_KINDS


def tag_constant_data(edge_program: ExportedProgram) -> None:
    """Gives each constant that tagged operators read the tag of one of them. Call it after tagging operators.

    Buffers that the program updates are left out: see `tag_mutated_buffer`. A constant read under several
    tags gets the smallest; lowering copies it for the other readers, unless `node.meta["no_copy"]` is set.
    """
    _tag_inputs(edge_program, is_mutated=False)


def tag_mutated_buffer(edge_program: ExportedProgram) -> None:
    """Gives each buffer that the program updates the tag of an operator that reads it.

    The delegate owns the buffer if old and new value are used inside the partition only; otherwise the buffer
    stays with the program and crosses the border.
    """
    _tag_inputs(edge_program, is_mutated=True)


def _tag_inputs(program: ExportedProgram, *, is_mutated: bool) -> None:
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    updated = mutated_state(program)
    for node in program.graph.nodes:
        if node.op != "placeholder" or specs[node.name].kind not in OWNABLE_KINDS:
            continue
        if (specs[node.name].target in updated) != is_mutated:
            continue
        tags = {user.meta[DELEGATION_TAG] for user in node.users if user.meta.get(DELEGATION_TAG) is not None}
        if len(tags) > 1:
            _log.info("constant %s is read by partitions %s and may be copied", node, sorted(tags))
        if tags:
            node.meta[DELEGATION_TAG] = min(tags)
