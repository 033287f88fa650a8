"""From a subgraph in the edge dialect to a model of OpenVINO, through OpenVINO's own frontend for PyTorch.

The frontend knows core ATen operators. What it gets is a graph written anew from the edge program: operators
are ATen's, operators of dimension orders are what they compute (every tensor is dense at the border of a
delegate), buffers that calls change come first among the inputs and among the results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import openvino as ov
import torch
from openvino.frontend import FrontEndManager
from openvino.frontend.pytorch.fx_decoder import TorchFXPythonDecoder
from torch.export.exported_program import ExportedProgram
from torch.export.graph_signature import OutputKind

from pteron_openvino.element_types import OV_TYPE

_DIM_ORDER = {
    "dim_order_ops._clone_dim_order.default": torch.ops.aten.clone.default,
    "dim_order_ops._to_dim_order_copy.default": torch.ops.aten._to_copy.default,
}


@dataclass(frozen=True)
class Subgraph:
    """A graph of ATen operators, and what crosses its border.

    Attributes:
        module: placeholders are states and then inputs; results are new states and then results.
        states: for each buffer that calls change, its name and first value.
        inputs: fake tensors (or symbolic numbers) of the inputs.
        outputs: fake tensors of the results.
        debug_handles: by node name.
    """

    module: torch.fx.GraphModule
    states: dict[str, torch.Tensor]
    inputs: list[Any]
    outputs: list[torch.Tensor]
    debug_handles: dict[str, int]


def aten_target(node: torch.fx.Node) -> Any:
    """The ATen operator, or Python's own on numbers, that an edge node computes."""
    target: Any = node.target
    if isinstance(target, torch._ops.OpOverload) or not hasattr(target, "_op"):
        return target
    return _DIM_ORDER.get(target.__name__, target._op)


def write_call(
    graph: torch.fx.Graph, node: torch.fx.Node, values: dict[torch.fx.Node, torch.fx.Node]
) -> torch.fx.Node:
    """Writes what an edge node computes in ATen operators."""
    target, args = aten_target(node), node.args
    kwargs = {k: v for k, v in node.kwargs.items() if k not in ("dim_order", "memory_format")}
    if target is torch.ops.aten.cat.default:
        # PyTorch takes empty vectors among tensors of more dimensions, the frontend does not.
        rank = node.meta["val"].dim()
        parts: Any = [part for part in args[0] if part.meta["val"].dim() == rank]  # type: ignore[union-attr]
        args = (parts, *args[1:])
        if len(parts) == 1:
            target, args, kwargs = torch.ops.aten.clone.default, (parts[0],), {}
    return graph.create_node(
        "call_function",
        target,
        torch.fx.node.map_arg(args, values.__getitem__),
        torch.fx.node.map_arg(kwargs, values.__getitem__),
        name=node.name,
    )


def subgraph_of(program: ExportedProgram) -> Subgraph:
    """Writes the graph of `program` anew in ATen operators.

    Raises:
        RuntimeError: it holds control flow, or a result that is no tensor.
    """
    writer = _Writer(program)
    return writer.written()


class _Writer:
    def __init__(self, program: ExportedProgram) -> None:
        self._program = program
        self._graph = torch.fx.Graph()
        self._nodes: dict[torch.fx.Node, torch.fx.Node] = {}
        self._root = torch.nn.Module()
        signature = program.graph_signature
        self._targets = {spec.arg.name: spec.target for spec in signature.input_specs}
        self._mutated = {
            spec.target: spec.arg.name
            for spec in signature.output_specs
            if spec.kind == OutputKind.BUFFER_MUTATION
        }

    def written(self) -> Subgraph:
        placeholders = [n for n in self._program.graph.nodes if n.op == "placeholder"]
        states = [n for n in placeholders if self._targets.get(n.name) in self._mutated]
        inputs = [n for n in placeholders if self._targets.get(n.name) is None]
        for node in (*states, *inputs):
            self._nodes[node] = self._graph.placeholder(node.name)
            self._nodes[node].meta = {"val": node.meta["val"]}
        handles: dict[str, int] = {}
        for node in self._program.graph.nodes:
            if node.op == "placeholder" and node not in self._nodes and node.users:
                self._constant(node)
            elif node.op == "call_function":
                written = self._nodes[node] = self._call(node)
                if isinstance(node.meta.get("debug_handle"), int):
                    handles[written.name] = node.meta["debug_handle"]
        outputs = self._outputs()
        self._graph.output(tuple(self._nodes[node] for node in outputs))
        module = torch.fx.GraphModule(self._root, self._graph)
        return Subgraph(
            module,
            {str(self._targets[n.name]): self._value(n) for n in states},
            [node.meta["val"] for node in inputs],
            [node.meta["val"] for node in outputs[len(states) :]],
            handles,
        )

    def _outputs(self) -> list[torch.fx.Node]:
        (output,) = [n for n in self._program.graph.nodes if n.op == "output"]
        results: list[torch.fx.Node] = list(output.args[0])
        changed = len(self._mutated)
        by_target = {target: results[at] for at, target in enumerate(self._mutated)}
        ordered = [self._targets[n.name] for n in self._program.graph.nodes if n.op == "placeholder"]
        states = [by_target[target] for target in ordered if target in by_target]
        for node in results[changed:]:
            if not isinstance(node, torch.fx.Node) or not isinstance(node.meta.get("val"), torch.Tensor):
                raise RuntimeError(f"OpenVINO: a delegate returns tensors only, and this is {node!r}")
        return states + results[changed:]

    def _value(self, node: torch.fx.Node) -> torch.Tensor:
        target = self._targets[node.name]
        held = self._program.state_dict.get(target)
        tensor: torch.Tensor = held if held is not None else self._program.constants[target]
        return tensor.detach().contiguous()

    def _constant(self, node: torch.fx.Node) -> None:
        name = f"constant_{node.name}"
        self._root.register_buffer(name, self._value(node))
        self._nodes[node] = self._graph.get_attr(name)
        self._nodes[node].meta = {"val": node.meta["val"]}

    def _call(self, node: torch.fx.Node) -> torch.fx.Node:
        if any(n.op == "get_attr" for n in node.all_input_nodes):
            raise RuntimeError(f"OpenVINO: {node.format_node()}: control flow stays in the runtime")
        written = write_call(self._graph, node, self._nodes)
        written.meta = {"val": node.meta.get("val")}
        return written


def to_openvino(subgraph: Subgraph) -> ov.Model:
    """The model of `subgraph`, with the element types and extents of its inputs, and names in order.

    Raises:
        RuntimeError: the frontend cannot convert an operator; the text is the frontend's.
    """
    frontend = FrontEndManager().load_by_framework("pytorch")
    placeholders = [node for node in subgraph.module.graph.nodes if node.op == "placeholder"]
    values = [node.meta["val"] for node in placeholders]
    decoder = TorchFXPythonDecoder(  # in a variable: the frontend does not keep it alive
        subgraph.module,
        input_shapes=[[d if isinstance(d, int) else -1 for d in getattr(v, "shape", ())] for v in values],
        input_types=[getattr(v, "dtype", torch.int64) for v in values],
    )
    model = frontend.convert(frontend.load(decoder))
    if len(model.inputs) != len(placeholders):
        raise RuntimeError(
            f"OpenVINO's frontend made {len(model.inputs)} inputs of {len(placeholders)} placeholders"
        )
    for port, node in zip(model.inputs, placeholders, strict=True):
        value = node.meta["val"]
        is_tensor = isinstance(value, torch.Tensor)
        port.get_node().set_element_type(OV_TYPE[value.dtype] if is_tensor else ov.Type.i64)
        port.get_node().set_partial_shape(partial_shape(value) if is_tensor else ov.PartialShape([]))
    model.validate_nodes_and_infer_types()
    for at, port in enumerate(model.inputs):
        port.get_tensor().set_names({f"input{at}"})
        port.get_node().set_friendly_name(f"input{at}")
    return _with_exact_results(model, subgraph)


def _with_exact_results(model: ov.Model, subgraph: Subgraph) -> ov.Model:
    """Results of the element types that the program states: the frontend keeps some numbers in others."""
    import openvino.opset13 as operators

    (output,) = [node for node in subgraph.module.graph.nodes if node.op == "output"]
    for at, (port, node) in enumerate(zip(model.outputs, output.args[0], strict=True)):
        value = node.meta["val"]
        wanted = OV_TYPE[value.dtype] if isinstance(value, torch.Tensor) else ov.Type.i64
        source = port.get_node().input(0).get_source_output()
        if source.get_element_type() != wanted:
            source = operators.convert(source, wanted.to_string()).output(0)
            port.get_node().input(0).replace_source_output(source)
        port.get_node().set_friendly_name(f"output{at}")
    model.validate_nodes_and_infer_types()
    return model


def partial_shape(value: torch.Tensor) -> ov.PartialShape:
    """Extents of a fake tensor: numbers, and open where they vary."""
    return ov.PartialShape([d if isinstance(d, int) else -1 for d in value.shape])
