"""Dimensions that were captured as dynamic must stay dynamic."""

from __future__ import annotations

from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch.export import ExportedProgram

from pteron.errors import ExportError
from pteron.exir.edge.propagate_values import fake_mode_of


def refuse_lost_dimensions(program: ExportedProgram, method: str) -> None:
    """Raise `ExportError` where an extent with a range was fixed to one number after capture.

    PyTorch does so, without a word, when something asks for the value of a symbolic extent. The program would
    then take only the size that the model was traced with.
    """
    mode = fake_mode_of(program.graph_module)
    if mode is None or mode.shape_env is None:
        return
    for symbol, bounds in program.range_constraints.items():
        fixed = mode.shape_env.replacements.get(symbol)
        if fixed is None or not fixed.is_number or bounds.lower == bounds.upper:
            continue
        raise ExportError(
            f"method {method!r}: {_where(program, symbol)} was exported with the range {bounds.lower} to "
            f"{bounds.upper}, but a pass, or the shape rule of an operator, fixed it to {fixed}",
            method=method,
            hint="run the transform passes without a call of int() or bool() on an extent, "
            "or export this dimension as static",
        )


def _where(program: ExportedProgram, symbol: sympy.Symbol) -> str:
    for node in program.graph_module.graph.nodes:
        value = node.meta.get("val")
        if node.op != "placeholder" or not isinstance(value, torch.Tensor):
            continue
        extents: tuple[Any, ...] = tuple(value.shape)
        for dimension, extent in enumerate(extents):
            # `expr` is the number already; `_expr` is what was traced.
            if isinstance(extent, torch.SymInt) and getattr(extent.node, "_expr", None) == symbol:
                return f"dimension {dimension} of {node.name!r}"
    return f"the extent {symbol}"
