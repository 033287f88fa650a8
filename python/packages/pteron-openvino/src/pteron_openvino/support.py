"""Which nodes OpenVINO takes: the frontend is asked to convert each, alone, and the result is compared.

No list of operators is kept here, since lists and libraries drift apart. A node is refused where its
conversion fails, where the converted operator has other element types or extents, and where OpenVINO is known
to compute other numbers than PyTorch.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import openvino as ov
import torch
from torch.fx.passes.operator_support import OperatorSupportBase

from pteron_openvino.convert import Subgraph, to_openvino, write_call
from pteron_openvino.element_types import OV_TYPE

#: Operators whose integer arguments are places in another tensor: 32 bits hold them.
_INDEXED = {
    "aten.embedding.default": {1},
    "aten.index.Tensor": {1},
    "aten.index_put.default": {1},
    "aten.index_select.default": {2},
    "aten.gather.default": {2},
    "aten.scatter.src": {2},
    "aten.scatter.value": {2},
    "aten.scatter_add.default": {2},
}
#: Operators whose integer results are places, and so below the extents of a tensor.
_PLACES = {
    "aten.argmax.default",
    "aten.argmin.default",
    "aten.max.dim",
    "aten.min.dim",
    "aten.topk.default",
    "aten.sort.default",
}
_EXACT = (torch.float32, torch.float16, torch.bfloat16, torch.bool)
_INEXACT = {
    torch.int64: "OpenVINO computes int64 in 32 bits",
    torch.float64: "OpenVINO computes float64 in float32",
}
_INEXACT_OTHERS = "OpenVINO's integers saturate where PyTorch's wrap, and are summed as floats"
#: Other numbers than PyTorch's, or not the same at every call.
_REFUSED: dict[str, str] = {
    "aten.rand.default": "random numbers are the runtime's, from its seed",
    "aten.randn.default": "random numbers are the runtime's, from its seed",
    "aten.bernoulli.p": "random numbers are the runtime's, from its seed",
    "aten.native_dropout.default": "random numbers are the runtime's, from its seed",
}


class OpenvinoSupport(OperatorSupportBase):
    """Answers for nodes of one program; `report(node, reason)` is told of each that stays."""

    def __init__(
        self, report: Callable[[torch.fx.Node, str], None], takes_integers: bool, left: frozenset[str]
    ) -> None:
        self._report, self._takes_integers, self._left = report, takes_integers, left
        self._reasons: dict[Any, str | None] = {}

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: torch.fx.Node) -> bool:
        """Whether OpenVINO takes `node`."""
        if node.op != "call_function":
            return False
        if _is_getitem(node):
            return self.is_node_supported(submodules, node.args[0])  # type: ignore[arg-type]
        reason = self._reason(node)
        if reason:
            self._report(node, reason)
        return reason is None

    def _reason(self, node: torch.fx.Node) -> str | None:
        name = getattr(node.target, "__name__", str(node.target))
        if name in self._left:
            return "the partitioner was told to leave this operator"
        if name in _REFUSED:
            return _REFUSED[name]
        if any(source.op == "get_attr" for source in node.all_input_nodes):
            return "control flow stays in the runtime"
        reason = None if self._takes_integers else _inexact(node, name)
        if reason:
            return reason
        key = _signature(node)
        if key not in self._reasons:
            self._reasons[key] = _trial(node)
        return self._reasons[key]


def _is_getitem(node: torch.fx.Node) -> bool:
    return getattr(node.target, "__name__", "") == "getitem"


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _inexact(node: torch.fx.Node, name: str) -> str | None:
    """Why the numbers would be others: integers are computed in 32 bits or in floats, float64 in float32."""
    if name.startswith("quantized_decomposed."):
        return None
    for at, argument in enumerate(node.args):
        if at in _INDEXED.get(name, ()):
            continue
        for source in torch.utils._pytree.tree_leaves(argument):
            for tensor in _tensors(source.meta.get("val")) if isinstance(source, torch.fx.Node) else ():
                if tensor.dtype not in _EXACT:
                    return _INEXACT.get(tensor.dtype, _INEXACT_OTHERS)
    for tensor in _used_results(node):
        if tensor.dtype not in _EXACT and not (name in _PLACES and tensor.dtype == torch.int64):
            return _INEXACT.get(tensor.dtype, _INEXACT_OTHERS)
    return None


def _used_results(node: torch.fx.Node) -> list[torch.Tensor]:
    value = node.meta.get("val")
    if isinstance(value, list | tuple):
        value = [value[at] for at in _used_places(node)]
    return _tensors(value)


def _used_places(node: torch.fx.Node) -> list[int]:
    places: set[Any] = {user.args[1] for user in node.users if _is_getitem(user)}
    return sorted(places)


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


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
    used = tuple(_used_places(node))
    return node.target, described(node.args), kwargs, described(node.meta.get("val")), used


def _trial(node: torch.fx.Node) -> str | None:
    """None where OpenVINO converts `node` to an operator with the same results in type and extent."""
    graph, sources = torch.fx.Graph(), dict[torch.fx.Node, torch.fx.Node]()
    for source in node.all_input_nodes:
        value = source.meta.get("val")
        if isinstance(value, torch.Tensor) and value.dtype not in OV_TYPE:
            return f"OpenVINO has no element type {_short(value.dtype)}"
        if not isinstance(value, torch.Tensor | torch.SymInt | int):
            return f"an argument is {type(value).__name__}"
        sources[source] = graph.placeholder(source.name)
        sources[source].meta = {"val": value}
    call = write_call(graph, node, sources)
    results = _results(graph, node, call)
    if isinstance(results, str):
        return results
    graph.output(tuple(results))
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    try:
        model = to_openvino(Subgraph(module, {}, [], [], {}))
    except Exception as error:  # the frontend raises what it likes; its text is the reason
        return f"OpenVINO's frontend does not convert it: {_last_line(error)}"
    return _differences(model, [result.meta["val"] for result in results])


def _results(graph: torch.fx.Graph, node: torch.fx.Node, call: torch.fx.Node) -> list[torch.fx.Node] | str:
    value = node.meta.get("val")
    if not isinstance(value, list | tuple):
        call.meta = {"val": value}
        return [call]
    call.meta = {"val": value}
    results = []
    for place in _used_places(node):
        item = graph.call_function(operator.getitem, (call, place))
        item.meta = {"val": value[place]}
        results.append(item)
    return results or "nothing reads its results"


def _differences(model: ov.Model, wanted: list[Any]) -> str | None:
    for port, value in zip(model.outputs, wanted, strict=True):
        if not isinstance(value, torch.Tensor):
            continue
        shape = port.get_partial_shape()
        if shape.rank.is_static and len(shape) != value.dim():
            return f"OpenVINO gives it {len(shape)} dimensions, PyTorch {value.dim()}"
        for got, extent in zip(shape, value.shape, strict=True) if shape.rank.is_static else ():
            if got.is_static and isinstance(extent, int) and got.get_length() != extent:
                return f"OpenVINO gives it the shape {shape}, PyTorch {list(value.shape)}"
    return None


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:200] if lines else type(error).__name__
