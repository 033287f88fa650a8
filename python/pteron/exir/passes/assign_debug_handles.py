"""Number the computing nodes of a program."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.export import ExportedProgram

from pteron.exir.passes.exported_program_pass import each_graph_with

DEBUG_HANDLE = "debug_handle"


def _source(node: torch.fx.Node) -> Any:
    """What identifies the operator of the captured model that `node` was made from; None if unknown."""
    origins = node.meta.get("from_node")
    if not origins:
        return None
    origin = origins[0]
    while getattr(origin, "from_node", None):
        origin = origin.from_node[0]
    return (origin.graph_id, origin.name)


def computes(node: torch.fx.Node) -> bool:
    """Whether `node` gets a debug handle: calls do, placeholders, attributes and outputs do not.

    A `getitem` shares the handle of the call whose results it picks.
    """
    return node.op == "call_function"


def _no_handles(program: ExportedProgram) -> dict[Any, int]:
    """What `assign_debug_handles` starts with: source → handle."""
    return {}


@each_graph_with(_no_handles)
def assign_debug_handles(module: torch.fx.GraphModule, handles: dict[Any, int]) -> None:
    """Set `meta["debug_handle"]` on every computing node of `program`, in place, counting from 1 in graph
    order.

    Nodes that one operator of the captured model was decomposed into share a handle. Numbers are unique
    within one program; those of a lowered module and of its caller are separate spaces.
    """
    for node in module.graph.nodes:
        if not computes(node):
            node.meta.pop(DEBUG_HANDLE, None)
            continue
        picked = node.args[0] if node.target is operator.getitem else None
        if isinstance(picked, torch.fx.Node) and DEBUG_HANDLE in picked.meta:
            node.meta[DEBUG_HANDLE] = picked.meta[DEBUG_HANDLE]
            continue
        source = _source(node)
        key = source if source is not None else ("node", module.graph, node.name)
        node.meta[DEBUG_HANDLE] = handles.setdefault(key, len(handles) + 1)
