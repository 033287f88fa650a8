"""A graph in Graphviz' language."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pteron.devtools.graph.nodes import Graph, Node

SHAPES = {"input": "ellipse", "output": "ellipse", "jump": "diamond", "delegate": "component"}


def dot(found: Sequence[Graph]) -> str:
    """The graph of a method; delegates are clusters beside it, joined to their calls."""
    whole, *inner = found
    lines = ["digraph {", "  node [shape=box]", *_lines(whole, "")]
    for number, graph in enumerate(inner):
        lines.append(f"  subgraph cluster_{number} {{")
        lines.append(f"    label={_quoted(graph.name)}")
        lines += [f"  {line}" for line in _lines(graph, f"d{number}")]
        lines.append("  }")
        for node in whole.nodes:
            if node.inner == graph.name and graph.nodes:
                lines.append(f"  {node.id} -> d{number}{graph.nodes[0].id} [style=dotted]")
    return "\n".join([*lines, "}"]) + "\n"


def _lines(graph: Graph, prefix: str) -> Iterator[str]:
    for node in graph.nodes:
        shape = f"shape={SHAPES[node.kind]}, " if node.kind in SHAPES else ""
        yield f"  {prefix}{node.id} [{shape}label={_quoted(_text(node))}]"
        for edge in node.edges:
            text = f" [label={_quoted(edge.text)}]" if edge.text else ""
            yield f"  {prefix}{edge.source} -> {prefix}{node.id}{text}"
        if node.target is not None:
            yield f"  {prefix}{node.id} -> {prefix}{node.target} [style=dashed]"


def _text(node: Node) -> str:
    return "\n".join(text for text in (node.label, node.module, node.loop) if text)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
