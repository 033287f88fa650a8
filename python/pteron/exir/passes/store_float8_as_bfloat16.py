"""Weights of float8, for which processors have no arithmetic."""

from __future__ import annotations

import torch
from torch.export import ExportedProgram

from pteron.exir.edge.exir_ops import exir_ops
from pteron.exir.passes.constant_values import add_constants, constant_values, remove_unread_constants

_CASTS = frozenset(
    {exir_ops.edge.aten._to_copy.default, exir_ops.edge.dim_order_ops._to_dim_order_copy.default}
)
_MOVES = frozenset(
    {"view_copy", "permute_copy", "transpose_copy", "t_copy", "unsqueeze_copy", "squeeze_copy"}
)
#: All of their numbers are numbers of bfloat16.
_FLOAT8 = frozenset({torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz})
_WIDER = frozenset({torch.bfloat16, torch.float32, torch.float64})


def store_float8_as_bfloat16(program: ExportedProgram) -> None:
    """A constant of float8 that is moved and cast to wider floats becomes one of bfloat16, exactly, in place:
    no kernel computes with float8, here or in ExecuTorch.
    """
    constants = constant_values(program)
    changed = False
    for source, value in constants.items():
        moves = _moves(source) if value.dtype in _FLOAT8 else None
        if moves is None:
            continue
        first = next(iter(source.users), source)
        (wide,) = add_constants(
            program, [(value.detach().to(torch.bfloat16), first)], prefix="_float8_weight"
        )
        source.replace_all_uses_with(wide)
        for node in moves:
            node.meta["val"] = node.meta["val"].to(torch.bfloat16)
        changed = True
    if changed:
        remove_unread_constants(program, set(constants))
        program.graph_module.recompile()


def _moves(source: torch.fx.Node) -> list[torch.fx.Node] | None:
    """The calls that only move elements between `source` and casts to wider floats; None where something else
    reads them.
    """
    found: list[torch.fx.Node] = []
    waiting = [source]
    while waiting:
        for user in waiting.pop().users:
            if user.target in _CASTS and user.meta["val"].dtype in _WIDER:
                continue
            if str(user.target).removeprefix("aten.").partition(".")[0] not in _MOVES:
                return None
            found.append(user)
            waiting.append(user)
    return found
