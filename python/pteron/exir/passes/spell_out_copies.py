"""Write what `copy_` does to its source, cast and broadcast, as operators."""

from __future__ import annotations

from typing import Any

import torch

from pteron.exir.passes.exported_program_pass import each_graph

_ATEN = torch.ops.aten


@each_graph
def spell_out_copies(module: torch.fx.GraphModule) -> bool:
    """Let every `copy_` of a captured program read the element type and the shape that it writes, in place.

    Before: `copy_(counts, x)` with integer `counts` and float `x`. After:
    `copy_(counts, _to_copy(x, dtype=int64))`. PyTorch 2.13 replaces a `copy_` of a whole tensor by its source
    when it makes a program functional, and forgets what `copy_` would have done to it.
    """
    copies = [node for node in module.graph.nodes if _differs(node)]
    for node in copies:
        _spell_out(node)
    if copies:
        module.recompile()
    return bool(copies)


def _differs(node: torch.fx.Node) -> bool:
    if node.op != "call_function" or node.target is not _ATEN.copy_.default:
        return False
    target, source = (_value(argument) for argument in node.args[:2])
    if not isinstance(target, torch.Tensor) or not isinstance(source, torch.Tensor):
        return False
    return target.dtype != source.dtype or str(target.shape) != str(source.shape)


def _value(argument: Any) -> Any:
    return argument.meta.get("val") if isinstance(argument, torch.fx.Node) else None


def _spell_out(node: torch.fx.Node) -> None:
    target, source = _value(node.args[0]), _value(node.args[1])
    given: Any = node.args[1]
    with node.graph.inserting_before(node):
        if target.dtype != source.dtype:
            given = node.graph.call_function(_ATEN._to_copy.default, (given,), {"dtype": target.dtype})
            source = source.to(target.dtype)
            given.meta = {**node.meta, "val": source}
        if str(target.shape) != str(source.shape):
            given = node.graph.call_function(_ATEN.expand_as.default, (given, node.args[0]))
            given.meta = {**node.meta, "val": source.expand_as(target)}
    node.update_arg(1, given)
