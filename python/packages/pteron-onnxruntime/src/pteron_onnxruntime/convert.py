"""From a subgraph in the edge dialect to an ONNX model, operator by operator.

Every tensor is dense at the border of a delegate, so that operators of dimension orders are copies. Buffers
that calls change come first among the inputs and among the results.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch.export.exported_program import ExportedProgram
from torch.export.graph_signature import OutputKind

from pteron_onnxruntime.graph import Graph, UnsupportedError, is_getitem
from pteron_onnxruntime.operators import CONVERTERS, Arguments

_ON_NUMBERS = {operator.add: "Add", operator.sub: "Sub", operator.mul: "Mul", operator.floordiv: "Div"}


@dataclass(frozen=True)
class Converted:
    """A graph, and what crosses its border.

    Attributes:
        graph: inputs are states and then inputs; results are new states and then results.
        states: for each buffer that calls change, its name and first value.
        inputs: fake tensors (or symbolic numbers) of the inputs.
        outputs: fake tensors of the results.
        debug_handles: by node name.
    """

    graph: Graph
    states: dict[str, torch.Tensor]
    inputs: list[Any]
    outputs: list[torch.Tensor]
    debug_handles: dict[str, int]


def convert_node(graph: Graph, node: torch.fx.Node) -> None:
    """Adds what one node computes.

    Raises:
        UnsupportedError: there is no converter, or not for these arguments.
    """
    graph.begin(node.name)
    if is_getitem(node):
        source, place = node.args
        value = graph.names(source)[place]  # type: ignore[arg-type, index]
        if value is None:
            raise UnsupportedError(f"result {place} is not converted")
        graph.set(node, value)
        return
    on_numbers = _ON_NUMBERS.get(node.target)  # type: ignore[arg-type]
    if on_numbers is not None:
        graph.set(node, graph.op(on_numbers, *(graph.tensor(each, torch.int64) for each in node.args)))
        return
    name = getattr(node.target, "__name__", str(node.target))
    converter = CONVERTERS.get(name)
    if converter is None:
        raise UnsupportedError("no converter to ONNX")
    graph.set(node, converter(graph, Arguments(graph, node)))


def converted_program(program: ExportedProgram) -> Converted:
    """Converts all of `program`.

    Raises:
        RuntimeError: a node cannot be converted; it is named with the reason.
    """
    signature = program.graph_signature
    targets = {spec.arg.name: spec.target for spec in signature.input_specs}
    changed = [s.target for s in signature.output_specs if s.kind == OutputKind.BUFFER_MUTATION]
    graph, handles = Graph(), dict[str, int]()
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    states = [node for node in placeholders if targets.get(node.name) in changed]
    inputs = [node for node in placeholders if targets.get(node.name) is None]
    for at, node in enumerate((*states, *inputs)):
        graph.set(node, graph.add_input(f"input{at}", node.meta["val"]))
    for node in placeholders:
        if node not in states and node not in inputs and node.users:
            graph.set(node, graph.constant(_value(program, targets[node.name])))
    for node in program.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        try:
            convert_node(graph, node)
        except (UnsupportedError, KeyError) as error:
            raise RuntimeError(f"ONNX: {node.format_node()}: {error}") from error
        if isinstance(node.meta.get("debug_handle"), int):
            handles[node.name] = node.meta["debug_handle"]
    (output,) = [node for node in program.graph.nodes if node.op == "output"]
    results = list(output.args[0])
    of_state = dict(zip(changed, results, strict=False))
    ordered = [of_state[targets[node.name]] for node in states] + results[len(changed) :]
    for at, node in enumerate(ordered):
        if not isinstance(node, torch.fx.Node) or not isinstance(node.meta.get("val"), torch.Tensor):
            raise RuntimeError(f"ONNX: a delegate returns tensors only, and this is {node!r}")
        graph.add_output(f"output{at}", graph.name(node), node.meta["val"])
    return Converted(
        graph,
        {str(targets[node.name]): _value(program, targets[node.name]) for node in states},
        [node.meta["val"] for node in inputs],
        [node.meta["val"] for node in ordered[len(states) :]],
        handles,
    )


def _value(program: ExportedProgram, target: Any) -> torch.Tensor:
    held = program.state_dict.get(target)
    tensor: torch.Tensor = held if held is not None else program.constants[target]
    return tensor.detach().contiguous()
