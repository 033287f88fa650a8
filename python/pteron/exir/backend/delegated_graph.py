"""What a lowered graph contains: its delegates, their payloads, and what was left to the runtime."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram

from pteron.exir.backend.delegate_call import is_delegate_output
from pteron.exir.backend.lowered_backend_module import LoweredBackendModule
from pteron.exir.backend.named_data_store import NamedDataStore
from pteron.exir.edge.control_flow import graph_modules
from pteron.exir.edge.delegate_call import is_delegate_call, lowered_module_of


def get_non_lowered_nodes(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """Operator calls that the runtime executes itself."""
    return [
        node
        for node in graph.nodes
        if node.op == "call_function" and not is_delegate_call(node) and not is_delegate_output(node)
    ]


def get_delegates(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """The `get_attr` nodes that name lowered modules."""
    return [node for node in graph.nodes if is_delegate_reference(node)]


def is_delegate_reference(node: torch.fx.Node) -> bool:
    """Whether `node` is a `get_attr` of a lowered module."""
    return node.op == "get_attr" and str(node.target).startswith("lowered_module_")


def collect_named_data_store_from_exported_program(
    exported_program: ExportedProgram, named_data_store: NamedDataStore
) -> None:
    """Adds what the delegates of a program put beside their blobs, those in bodies of control flow too.

    Raises:
        ValueError: two delegates give one key different bytes. (A program file may have them: each delegate
            reads its own.)
    """
    for module in graph_modules(exported_program.graph_module):
        for node in module.graph.nodes:
            if is_delegate_call(node):
                found = lowered_module_of(node).named_data_store_output
                if found is not None:
                    named_data_store.merge_named_data_store(found)


def get_delegated_payload(
    graph_module: torch.fx.GraphModule,
) -> dict[str, tuple[str, list[Any], bytes]]:
    """Node name of each delegate to (backend id, compile specs, blob)."""
    return {
        node.name: (lowered.backend_id, lowered.compile_specs, lowered.processed_bytes)
        for node, lowered in _delegates(graph_module)
    }


def format_delegated_graph(graph_module: torch.fx.GraphModule) -> str:
    """The graph as text, with each delegate's backend and original graph indented below it."""
    lowered_modules = dict(_delegates(graph_module))
    lines = ["graph():"]
    for node in graph_module.graph.nodes:
        lines.append(f"  {node.format_node()}")
        lowered = lowered_modules.get(node)
        if lowered is not None:
            lines.append(f"    backend_id: {lowered.backend_id}")
            lines.append("    lowered graph():")
            lines += [f"      {inner.format_node()}" for inner in lowered.original_module.graph.nodes]
    return "\n".join(lines) + "\n"


def print_delegated_graph(graph_module: torch.fx.GraphModule) -> None:
    """Prints `format_delegated_graph`."""
    print(format_delegated_graph(graph_module))


def is_shape_dynamic(node: torch.fx.Node) -> bool:
    """Whether a dimension of the node's value is symbolic."""
    return any(isinstance(extent, torch.SymInt) for extent in node.meta["val"].shape)


def _delegates(graph_module: torch.fx.GraphModule) -> list[tuple[torch.fx.Node, LoweredBackendModule]]:
    found = []
    for node in get_delegates(graph_module.graph):
        lowered = getattr(graph_module, str(node.target))
        if isinstance(lowered, LoweredBackendModule):
            found.append((node, lowered))
    return found
