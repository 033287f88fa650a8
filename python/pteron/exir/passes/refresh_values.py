"""Recompute fake results between passes."""

from __future__ import annotations

from torch.export import ExportedProgram

from pteron.exir.edge.propagate_values import propagate_values


def refresh_values(program: ExportedProgram) -> None:
    """Make `meta["val"]` of the top-level graph of `program` agree with its operators, in place.

    A view operator returned strides of its input; the copy that replaced it returns a contiguous tensor.
    Branches of control flow keep the values of their trace: theirs depend on operands that only the caller
    knows.
    """
    propagate_values(program.graph_module)
