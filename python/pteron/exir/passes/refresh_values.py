"""Recompute fake results between passes."""

from __future__ import annotations

from torch.export import ExportedProgram

from pteron.exir.edge.propagate_values import propagate_values


def refresh_values(program: ExportedProgram) -> None:
    """Make `meta["val"]` of the graphs of `program` agree with their operators, in place.

    A view operator returned strides of its input; the copy that replaced it returns a contiguous tensor.
    """
    propagate_values(program.graph_module)
