"""Bring a captured program into core ATen."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch._decomp import get_decompositions
from torch._ops import OpOverload
from torch.export import ExportedProgram

from pteron.exir.edge.control_flow import graph_modules
from pteron.exir.edge.stages import is_core_aten
from pteron.exir.torch_decompositions import run_decompositions

# A decomposition may introduce operators that need one themselves; PyTorch's nest at most three deep.
_MOST_ROUNDS = 4

# Core operators that PyTorch's table writes with others: one row that changes becomes a choice over all rows.
_KEPT = (torch.ops.aten.select_scatter.default,)


def decompose_to_core(program: ExportedProgram, preserved: Collection[OpOverload]) -> ExportedProgram:
    """A new, functional program of core ATen operators; `preserved` operators stay whole.

    PyTorch's default table leaves a few operators that are not core though it has a decomposition for them
    (`linalg_vector_norm` is one); those are decomposed as well. What has none stays, for the verifier to
    report.
    """
    # What is known to need more from the start saves a second trace.
    preserved = frozenset({*preserved, *_KEPT})
    core = run_decompositions(program, _with_decomposition(program, preserved), preserved)
    for _ in range(_MOST_ROUNDS):
        rest = _with_decomposition(core, preserved)
        if not rest:
            break
        core = core.run_decompositions({**rest})
    return core


def _with_decomposition(
    program: ExportedProgram, preserved: Collection[OpOverload]
) -> dict[OpOverload, Callable[..., Any]]:
    left = {
        node.target
        for module in graph_modules(program.graph_module)
        for node in module.graph.nodes
        if node.op == "call_function"
        and isinstance(node.target, OpOverload)
        and node.target.namespace == "aten"
        and node.target not in preserved
        and not is_core_aten(node.target)
        and torch.Tag.core not in node.target.tags
    }
    return {op: rule for op, rule in get_decompositions(list(left)).items() if isinstance(op, OpOverload)}
