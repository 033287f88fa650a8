"""What every operator of a graph computes for given inputs: the reference of a comparison."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from pteron.devtools.inspector.comparators import DebugHandle
from pteron.devtools.inspector.event_block import handles_as_tuple


def has_output(node: Node) -> bool:
    """Whether a node is an operator with a debug handle."""
    return (
        node.op == "call_function"
        and node.target is not operator.getitem
        and node.meta.get("debug_handle") is not None
    )


class IntermediateOutputCapturer(Interpreter):
    """Runs a graph module and keeps what its operators gave."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self._outputs: dict[DebugHandle, Any] = {}

    def run_node(self, n: Node) -> Any:
        """Runs one node and keeps its result."""
        result = super().run_node(n)
        if has_output(n):
            self._outputs[handles_as_tuple(n.meta["debug_handle"])] = _kept(result)
        return result

    def run_and_capture(self, *args: Any, **kwargs: Any) -> dict[DebugHandle, Any]:
        """Debug handles → what the last of their nodes gave."""
        self._outputs = {}
        with torch.no_grad():
            self.run(*args, **kwargs)
        return self._outputs


def _kept(result: Any) -> Any:
    if isinstance(result, torch.Tensor):
        return result.detach().clone()
    if isinstance(result, (tuple, list)):
        return [_kept(each) for each in result]
    return result


def operator_names(module: GraphModule) -> dict[DebugHandle, list[str]]:
    """Debug handles → the names of their nodes."""
    found: dict[DebugHandle, list[str]] = {}
    for node in module.graph.nodes:
        if has_output(node):
            found.setdefault(handles_as_tuple(node.meta["debug_handle"]), []).append(node.name)
    return found


def stack_traces(module: GraphModule) -> dict[str, str | None]:
    """Name of a node → the frames that it was called from."""
    return {node.name: node.meta.get("stack_trace") for node in module.graph.nodes if has_output(node)}


def propagate_handles(captured: GraphModule, edge: GraphModule, *, needs_all: bool = True) -> bool:
    """Gives the operators of a captured program the debug handles of the edge operators made of them.

    False, and nothing is changed, where an edge operator comes from no operator of the captured program;
    `needs_all=False` lets that pass.
    """
    by_origin: dict[tuple[str, str], Any] = {}
    unmatched = set()
    known = {(node.name, str(node.target)) for node in captured.graph.nodes if node.op == "call_function"}
    for node in edge.graph.nodes:
        if node.op != "call_function":
            continue
        origins = [each for each in _origins(node) if each in known]
        if origins:
            by_origin.setdefault(origins[-1], node.meta.get("debug_handle"))
        else:
            unmatched.add(node)
    if unmatched and needs_all:
        return False
    for node in captured.graph.nodes:
        node.meta.pop("debug_handle", None)
        handle = by_origin.get((node.name, str(node.target)))
        if handle is not None:
            node.meta["debug_handle"] = handle
    return True


def _origins(node: Node) -> list[tuple[str, str]]:
    """The nodes that a node came from, the latest first."""
    found = []
    origins = node.meta.get("from_node") or []
    while origins:
        found.append((origins[-1].name, str(origins[-1].target)))
        origins = origins[-1].from_node
    return found
