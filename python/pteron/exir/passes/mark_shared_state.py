"""A buffer that one method updates is no constant of the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from pteron.exir.passes.constant_values import UPDATED_ELSEWHERE, updated_placeholders


def mark_shared_state(programs: Mapping[str, ExportedProgram]) -> None:
    """Mark these buffers, in place, where methods read them: nothing is computed from their initial values at
    export, and equal ones stay apart. Buffers are known by name.
    """
    updated = {
        name
        for program in programs.values()
        for name, node in _buffers(program)
        if node in updated_placeholders(program)
    }
    for program in programs.values():
        for name, node in _buffers(program):
            if name in updated:
                node.meta[UPDATED_ELSEWHERE] = True


def _buffers(program: ExportedProgram) -> Iterator[tuple[str, torch.fx.Node]]:
    placeholders = [node for node in program.graph_module.graph.nodes if node.op == "placeholder"]
    for spec, node in zip(program.graph_signature.input_specs, placeholders, strict=True):
        if spec.kind is InputKind.BUFFER:
            yield str(spec.target), node
