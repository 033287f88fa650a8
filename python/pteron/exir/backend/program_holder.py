"""Objects that hold an edge program and are accepted where one is."""

from __future__ import annotations

from typing import Any

from torch.export.exported_program import ExportedProgram


def program_of(held: Any) -> ExportedProgram:
    """The edge program in `held`: itself, or what its `exported_program` attribute is.

    Raises:
        TypeError: there is none.
    """
    if isinstance(held, ExportedProgram):
        return held
    program = getattr(held, "exported_program", None)
    if isinstance(program, ExportedProgram) and hasattr(held, "with_exported_program"):
        return program
    hint = ""
    if callable(program):
        hint = "; pass its .exported_program(), or call its own .to_backend(partitioner)"
    raise TypeError(f"expected an edge program (ExportedProgram), got {type(held).__name__}{hint}")


def with_program(held: Any, program: ExportedProgram) -> Any:
    """`program` in an object of the same kind as `held`."""
    return program if isinstance(held, ExportedProgram) else held.with_exported_program(program)
