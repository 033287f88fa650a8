"""Operators that compute as in training: a model was exported without `eval()`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram

from pteron.exir.edge.control_flow import graph_modules

# Modules named in the warning; the others are counted.
_NAMED = 5


def warn_of_training_mode(program: ExportedProgram, method: str) -> None:
    """A UserWarning where operators of `program` drop values at random or normalise by the batch at hand."""
    found = list(dict.fromkeys(_places(program)))
    if not found:
        return
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    warnings.warn(
        f"method {method!r} computes as in training: {', '.join(found[:_NAMED])}{more}; results are random "
        "or depend on the other rows of a batch. Call model.eval() before torch.export.export, unless this "
        "is meant",
        stacklevel=2,
    )


def _places(program: ExportedProgram) -> Iterator[str]:
    for module in graph_modules(program.graph_module):
        for node in module.graph.nodes:
            if isinstance(node.target, OpOverload) and _trains(node):
                yield f"{_module_of(node)} ({node.target.overloadpacket.__name__})"


def _trains(node: torch.fx.Node) -> bool:
    given = _arguments(node)
    if given.get("dropout_p"):
        return True  # attention
    if not (given.get("training") or given.get("train") or given.get("use_input_stats")):
        return False
    if "running_mean" in given:
        return given["running_mean"] is not None  # without, the statistics of the batch are all there are
    return bool(given.get("p", given.get("dropout", 1)))


def _arguments(node: torch.fx.Node) -> dict[str, Any]:
    """Arguments by the names of the schema."""
    assert isinstance(node.target, OpOverload)
    names = [argument.name for argument in node.target._schema.arguments]
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}


def _module_of(node: torch.fx.Node) -> str:
    """Path of the innermost module that the node comes from."""
    stack = list(node.meta.get("nn_module_stack", {}).values())
    return (stack[-1][0] if stack else "") or "the model itself"
