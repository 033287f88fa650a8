"""Objects that hold an edge program and are accepted where one is."""

from __future__ import annotations

from typing import Any

import torch
from torch.export.exported_program import ExportedProgram

from pteron.errors import ExportError
from pteron.exir.edge.edge_dialect_verifier import EdgeDialectVerifier


def program_of(held: Any) -> ExportedProgram:
    """The edge program in `held`: itself, or what its `exported_program` attribute is.

    Raises:
        TypeError: there is none.
        ExportError: it is a captured program that `to_edge` has not brought into the edge dialect.
    """
    if isinstance(held, ExportedProgram):
        return _checked(held)
    program = getattr(held, "exported_program", None)
    if isinstance(program, ExportedProgram) and hasattr(held, "with_exported_program"):
        return _checked(program)
    hint = ""
    if callable(program):
        hint = "; pass its .exported_program(), or call its own .to_backend(partitioner)"
    if isinstance(held, torch.nn.Module):
        hint = "; make one with to_edge(torch.export.export(model, inputs)).exported_program()"
    raise TypeError(f"expected an edge program (ExportedProgram), got {type(held).__name__}{hint}")


def _checked(program: ExportedProgram) -> ExportedProgram:
    if program.dialect != EdgeDialectVerifier.dialect:
        raise ExportError(
            f"to_backend: expected a program in the edge dialect, got dialect {program.dialect!r}",
            expected=EdgeDialectVerifier.dialect,
            got=program.dialect,
            hint="call to_edge on it first: to_edge(program).exported_program(), or capture(...).to_edge()",
        )
    return program


def with_program(held: Any, program: ExportedProgram) -> Any:
    """`program` in an object of the same kind as `held`."""
    return program if isinstance(held, ExportedProgram) else held.with_exported_program(program)
