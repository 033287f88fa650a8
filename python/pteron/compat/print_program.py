"""Prints programs, under the names of the older examples. `ExecutorchProgramManager.dump_executorch_program`
and `pteron.load(...).listing()` give the same text.
"""

from __future__ import annotations

import pprint
from typing import Any, TextIO


def print_program(
    program: Any,
    show_meminfo: bool = True,
    mark_dynamic_shape_tensor: bool = False,
    out: TextIO | None = None,
) -> None:
    """Prints the listing of a `Program` (objects, as `manager.executorch_program` is).

    Args:
        program: what to print.
        show_meminfo: accepted; the listing always shows where tensors lie.
        mark_dynamic_shape_tensor: accepted; the listing always shows bounds of dynamic shapes.
        out: where to print, None for standard output.
    """
    from pteron import _native
    from pteron.exir.serialize.serialize_program import serialize_program

    print(_native.listing(serialize_program(program)), file=out)


def pretty_print(obj: Any, indent: int = 0, out: TextIO | None = None) -> None:
    """Prints an object of the program with its fields, `indent` columns from the left."""
    pprint.pprint(obj, stream=out, indent=1 + indent, width=110)


def add_cursor_to_graph(graph: Any, finding_node: Any) -> str:
    """The text of a graph, with an arrow before one node."""
    lines = ["graph():"]
    for node in graph.nodes:
        text = node.format_node()
        if text:
            lines.append(f"{'-->' if node is finding_node else '   '} {text}")
    return "\n".join(lines)


def inspect_node(graph: Any, node: Any) -> str:
    """The text of a graph with an arrow before `node`, then its spec and the frames that it was made in."""
    parts = [
        f"Here is the node in the graph module:\n{add_cursor_to_graph(graph, node)}",
        f"This node {node} has metadata of:",
    ]
    if "spec" in node.meta:
        parts.append(f"The node spec:\n{node.meta['spec']}")
    if "stack_trace" in node.meta:
        frames = node.meta["stack_trace"]
        parts.append(f"The node stacktrace:\nTraceback (most recent call last):\n{frames}")
    return "\n".join([*parts, ""])
