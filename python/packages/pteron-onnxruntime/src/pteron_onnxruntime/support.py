"""Which nodes ONNX Runtime takes: each is converted alone, and ONNX Runtime is asked to make a session of it.

A node is refused where there is no converter, where a converter refuses the arguments, and where ONNX Runtime
has no kernel for the element types, or infers other extents. The reference is its execution provider for
processors, to which every other provider leaves what it does not take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import onnxruntime
import torch
from torch.fx.passes.operator_support import OperatorSupportBase

from pteron_onnxruntime.convert import convert_node
from pteron_onnxruntime.graph import ONNX_TYPE, Graph, UnsupportedError, is_getitem


class OnnxRuntimeSupport(OperatorSupportBase):
    """Answers for nodes of one program; `report(node, reason)` is told of each that stays."""

    def __init__(self, report: Callable[[torch.fx.Node, str], None], left: frozenset[str]) -> None:
        self._report, self._left = report, left
        self._reasons: dict[Any, str | None] = {}

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: torch.fx.Node) -> bool:
        """Whether ONNX Runtime takes `node`."""
        if node.op != "call_function":
            return False
        if is_getitem(node):
            return self.is_node_supported(submodules, node.args[0])  # type: ignore[arg-type]
        reason = self._reason(node)
        if reason:
            self._report(node, reason)
        return reason is None

    def _reason(self, node: torch.fx.Node) -> str | None:
        if getattr(node.target, "__name__", str(node.target)) in self._left:
            return "the partitioner was told to leave this operator"
        if any(source.op == "get_attr" for source in node.all_input_nodes):
            return "control flow stays in the runtime"
        undefined = _undefined(node)
        if undefined:
            return undefined
        key = _signature(node)
        if key not in self._reasons:
            self._reasons[key] = _trial(node)
        return self._reasons[key]


def _undefined(node: torch.fx.Node) -> str | None:
    """What ONNX leaves to its implementations: PyTorch's result is the processor's."""
    wanted = node.meta.get("val")
    if "_to_" not in str(node.target) or not isinstance(wanted, torch.Tensor):
        return None
    source = node.all_input_nodes[0].meta["val"].dtype
    if source.is_floating_point and not wanted.dtype.is_floating_point and wanted.dtype != torch.bool:
        return f"ONNX does not define {source} to {wanted.dtype} for numbers out of range"
    return None


def _used_places(node: torch.fx.Node) -> list[int]:
    places: set[Any] = {user.args[1] for user in node.users if is_getitem(user)}
    return sorted(places)


def _signature(node: torch.fx.Node) -> Any:
    """Nodes of one signature are converted alike."""

    def described(value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            return described(value.meta.get("val"))
        if isinstance(value, torch.Tensor):
            return str(value.dtype), tuple(d if isinstance(d, int) else "?" for d in value.shape)
        if isinstance(value, list | tuple):
            return tuple(map(described, value))
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            return type(value).__name__
        return type(value).__name__, repr(value)

    kwargs = tuple((key, described(value)) for key, value in sorted(node.kwargs.items()))
    return (
        node.target,
        described(node.args),
        kwargs,
        described(node.meta.get("val")),
        tuple(_used_places(node)),
    )


def _trial(node: torch.fx.Node) -> str | None:
    """None where ONNX Runtime makes a session of `node`, with the results that PyTorch has."""
    graph = Graph()
    try:
        for at, source in enumerate(node.all_input_nodes):
            value = source.meta.get("val")
            if not isinstance(value, torch.Tensor | torch.SymInt | int):
                return f"an argument is {type(value).__name__}"
            graph.set(source, graph.add_input(f"input{at}", value))
        convert_node(graph, node)
        wanted = _add_results(graph, node)
    except (UnsupportedError, KeyError) as error:
        return f"ONNX: {error}"
    if not wanted:
        return "nothing reads its results"
    model, _ = graph.model(largest=1 << 30)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exceptions have no base of their own
        return f"ONNX Runtime: {_reason(error)}"
    return None


def _add_results(graph: Graph, node: torch.fx.Node) -> list[Any]:
    value = node.meta.get("val")
    places = _used_places(node) if isinstance(value, list | tuple) else [None]
    wanted = []
    for at, place in enumerate(places):
        name = graph.names(node)[0 if place is None else place]
        if name is None:
            raise UnsupportedError(f"result {place} is not converted")
        wanted.append(value if place is None else value[place])  # type: ignore[index]
        if isinstance(wanted[-1], torch.Tensor) and wanted[-1].dtype not in ONNX_TYPE:
            raise UnsupportedError(f"ONNX has no element type {wanted[-1].dtype}")
        graph.add_output(f"output{at}", name, wanted[-1])
    return wanted


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
