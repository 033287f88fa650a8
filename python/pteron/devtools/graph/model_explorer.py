"""Graphs and overlays in the JSON that https://github.com/google-ai-edge/model-explorer opens."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pteron.devtools.graph.nodes import Graph, Node

#: From the smallest value to the largest.
GRADIENT = [
    {"stop": 0, "bgColor": "#ffffff"},
    {"stop": 0.5, "bgColor": "#ffe08a"},
    {"stop": 1, "bgColor": "#e5533d"},
]


def model_explorer(found: Sequence[Graph]) -> str:
    """The graph of a method and its delegates; modules, loops and branches are layers."""
    names = {graph.name for graph in found}
    whole = {"label": found[0].name, "graphs": [_graph(graph, names) for graph in found]}
    return json.dumps(whole, indent=1) + "\n"


def node_data(graph: str, name: str, values: Mapping[str, float]) -> str:
    """An overlay on the graph of that name: numbers by id of a node, coloured from smallest to largest."""
    results = {node: {"value": value} for node, value in values.items()}
    return json.dumps({graph: {"name": name, "results": results, "gradient": GRADIENT}}, indent=1) + "\n"


def _graph(graph: Graph, names: set[str]) -> dict[str, Any]:
    return {"id": graph.name, "nodes": [_node(node, names) for node in graph.nodes]}


def _node(node: Node, names: set[str]) -> dict[str, Any]:
    layers = [*node.module.split("."), node.loop]
    return {
        "id": node.id,
        "label": node.label.split("\n")[0],
        "namespace": "/".join(layer for layer in layers if layer),
        "subgraphIds": [node.inner] if node.inner in names else [],
        "attrs": [{"key": key, "value": value} for key, value in node.facts.items()],
        "incomingEdges": [
            {
                "sourceNodeId": edge.source,
                "sourceNodeOutputId": str(edge.number),
                "targetNodeInputId": str(at),
            }
            for at, edge in enumerate(node.edges)
        ],
        "outputsMetadata": [_result(number, *result) for number, result in enumerate(node.results)],
    }


def _result(number: int, value: int, text: str) -> dict[str, Any]:
    attrs = [{"key": "__tensor_tag", "value": str(value)}, {"key": "tensor_shape", "value": text}]
    return {"id": str(number), "attrs": attrs}
