"""The programs of a call, by method name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.export import ExportedProgram

from pteron.errors import ExportError

DEFAULT_METHOD = "forward"


def programs_by_method(programs: Any, where: str) -> dict[str, ExportedProgram]:
    """`programs` as a dict: one `ExportedProgram` is method "forward".

    `where` is the name of the caller's function, for errors. Raises `TypeError` for anything else than an
    `ExportedProgram` or a mapping from names to them, `ExportError` where there is none at all.
    """
    if isinstance(programs, ExportedProgram):
        return {DEFAULT_METHOD: programs}
    if not isinstance(programs, Mapping):
        raise TypeError(
            f"{where}: expected a torch.export.ExportedProgram, or a dict from method name to one, got "
            f"{_shown(programs)}"
        )
    if not programs:
        raise ExportError(f"{where} needs at least one program")
    for name, program in programs.items():
        if not isinstance(name, str):
            raise TypeError(f"{where}: expected method names as keys, got {name!r}")
        if not isinstance(program, ExportedProgram):
            raise TypeError(
                f"{where}: method {name!r}: expected a torch.export.ExportedProgram, got {_shown(program)}"
            )
    return dict(programs)


def _shown(given: Any) -> str:
    """What was given, and what to do instead."""
    kind = type(given).__name__
    if isinstance(given, torch.nn.Module):
        return f"a model ({kind}); call torch.export.export(model, inputs) first and pass its result"
    own_method = getattr(given, "to_edge", None) or getattr(given, "exported_program", None)
    if callable(own_method):
        return f"{kind}; it has a method {own_method.__name__}() of its own, call that"
    return f"{kind}; torch.export.export(model, inputs) makes one from a model"
