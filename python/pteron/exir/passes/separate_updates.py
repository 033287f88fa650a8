"""Let each update of a buffer or an input have a new value of its own."""

from __future__ import annotations

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram

_COPY = torch.ops.aten.copy_.default


def separate_updates(program: ExportedProgram) -> None:
    """Clone a tensor of a captured program that may be the new value of two buffers, in place.

    Before: `copy_(p, x); copy_(q, x)`. After: `copy_(p, clone(x)); copy_(q, clone(x))`. PyTorch counts
    updates by the node of the new value, so its verifier refuses a program in which two share one. What an
    operator made for one `copy_` alone is not cloned.
    """
    graph = program.graph
    copies = [node for node in graph.nodes if _is_update(node)]
    sources = [node.args[1] for node in copies]
    shared = [node for node in copies if _may_be_shared(node.args[1], sources)]
    if not shared or len(_written_inputs(graph)) < 2:
        return
    for copy in shared:
        source = copy.args[1]
        assert isinstance(source, torch.fx.Node)
        with graph.inserting_before(copy):
            clone = graph.call_function(torch.ops.aten.clone.default, (source,))
        clone.meta = {**copy.meta, "val": source.meta["val"]}
        copy.update_arg(1, clone)
    program.graph_module.recompile()


def _is_update(node: torch.fx.Node) -> bool:
    return (
        node.op == "call_function"
        and node.target is _COPY
        and isinstance(node.args[0], torch.fx.Node)
        and isinstance(node.args[1], torch.fx.Node)
    )


def _may_be_shared(source: object, sources: list[object]) -> bool:
    """Whether `source` may be another update's value too: an input, the result of an update, or what a second
    `copy_` reads.
    """
    assert isinstance(source, torch.fx.Node)
    return source.op == "placeholder" or _is_mutable(source) or sources.count(source) > 1


def _is_mutable(node: torch.fx.Node) -> bool:
    return isinstance(node.target, OpOverload) and node.target._schema.is_mutable


def _written_inputs(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    """Inputs that calls write to, or to a part of."""
    found = set()
    for node in graph.nodes:
        if node.op == "call_function" and _is_mutable(node) and isinstance(node.args[0], torch.fx.Node):
            found.add(_root(node.args[0]))
    return {node for node in found if node.op == "placeholder"}


def _root(node: torch.fx.Node) -> torch.fx.Node:
    """What `node` is a view of, through updates in place too."""
    while node.op == "call_function" and isinstance(node.target, OpOverload):
        first = node.target._schema.arguments[0] if node.target._schema.arguments else None
        base = node.args[0] if node.args else None
        if first is None or first.alias_info is None or not isinstance(base, torch.fx.Node):
            break
        node = base
    return node
