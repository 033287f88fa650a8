"""PT2E with `PteronQuantizer`: capture, calibrate, convert; again with other means for layers that suffer."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule, Interpreter, Node

from pteron.errors import ExportError
from pteron.quant.integer_regions import CONVOLUTIONS, LINEAR
from pteron.quant.layer_errors import relative_error
from pteron.quant.quantizer import PteronQuantizer, module_name
from pteron.quant.report import LayerReport
from pteron.quant.row_layers import quantize_rows
from pteron.quant.torchao_parts import torchao

_KINDS = {**{op: op._schema.name.split("::")[1] for op in CONVOLUTIONS}, LINEAR: "linear"}


@dataclass
class _Layer:
    """A product of a converted graph: its name among the modules, and what it differs by from float."""

    name: str
    kind: str
    weight: torch.Tensor
    scheme: str
    error: float | None


def quantize_static(
    model: nn.Module,
    examples: tuple[Any, ...],
    calibration: Iterable[Sequence[Any]],
    limit: float,
    leave: frozenset[str],
) -> tuple[nn.Module, list[LayerReport]]:
    """The converted graph, and its layers. Linear layers beyond `limit` get scales for each row of a call in
    a second conversion; other layers beyond it, and those that it does not help, are left in float.
    """
    batches = [tuple(batch) for batch in calibration]
    if not batches:
        raise ValueError("quantize: calibration= has no inputs, expected some that are like those of use")
    captured = torch.export.export(model, examples).module()
    converted, layers = _converted(captured, examples, batches, leave)
    if all(layer.scheme == "float32" for layer in layers):
        raise ExportError(
            'quantize: the model has no layer that scheme="int8" quantises',
            expected="convolutions (1-d, 2-d) or linear layers with float32 weights of their own",
        )
    errors: dict[str, float] = {}
    coarse: set[str] = set()
    rows: set[str] = set()
    # A layer has each scheme once, so this ends.
    while beyond := _beyond(layers, limit):
        errors.update(beyond)
        linear = {layer.name for layer in layers if layer.kind == "linear"}
        rows = (rows - beyond.keys()) | (linear & beyond.keys() - coarse)
        coarse |= beyond.keys()
        converted, layers = _converted(captured, examples, batches, leave | coarse, rows)
    reasons = {name: f"error {errors[name]:.1%} above {limit:.1%}" for name in coarse - rows}
    # Of a layer in float, that of what was tried last.
    measured = [errors.get(layer.name) if layer.error is None else layer.error for layer in layers]
    return converted, [_report(*pair, reasons) for pair in zip(layers, measured, strict=True)]


def _beyond(layers: list[_Layer], limit: float) -> dict[str, float]:
    """Quantised layers whose error is above the limit, and that error."""
    return {
        layer.name: layer.error for layer in layers if layer.error is not None and not layer.error <= limit
    }


def _report(layer: _Layer, error: float | None, reasons: dict[str, str]) -> LayerReport:
    before = 4 * layer.weight.numel()
    if layer.scheme != "float32":
        after = layer.weight.numel() + 4 * layer.weight.shape[0]
        return LayerReport(layer.name, layer.kind, layer.scheme, before, after, error)
    reason = reasons.get(layer.name, "as asked, or its weight is shared")
    return LayerReport(layer.name, layer.kind, "float32", before, before, error, reason)


def _converted(
    captured: nn.Module,
    examples: tuple[Any, ...],
    batches: list[tuple[Any, ...]],
    leave: frozenset[str],
    rows: Collection[str] = (),
) -> tuple[GraphModule, list[_Layer]]:
    """The graph with static scales, and with scales of rows in the layers `rows`, which are among `leave`."""
    flow = torchao("quantization.pt2e.quantize_pt2e")
    prepared = flow.prepare_pt2e(copy.deepcopy(captured), PteronQuantizer(leave=leave))
    # Batch norms are folded by now, and observers change no value. Those of the copy see the examples.
    floats = {node.name: value for node, value in _values(copy.deepcopy(prepared), examples).items()}
    for batch in batches:
        prepared(*batch)
    converted: GraphModule = flow.convert_pt2e(prepared)
    for node in list(converted.graph.nodes):
        if node.target is LINEAR and module_name(node) in rows:
            quantize_rows(converted, node)
    converted.recompile()
    return converted, _layers(converted, floats, examples)


class _Recorder(Interpreter):
    """Runs a graph and keeps a copy of every value: a call may write into one later (`add_`)."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.values: dict[Node, Any] = {}

    def run_node(self, n: Node) -> Any:
        """The value of `n`, which is kept."""
        value = super().run_node(n)
        self.values[n] = value.clone() if isinstance(value, torch.Tensor) else value
        return value


def _values(module: GraphModule, examples: tuple[Any, ...]) -> dict[Node, Any]:
    """Node → what it computes for the examples."""
    recorder = _Recorder(module)
    recorder.run(*examples)
    return recorder.values


def _layers(converted: GraphModule, floats: dict[str, Any], examples: tuple[Any, ...]) -> list[_Layer]:
    values = _values(converted, examples)
    found = []
    for node in converted.graph.nodes:
        if node.target not in _KINDS:
            continue
        error = None
        scheme = _scheme(node)
        if scheme != "float32" and node.name in floats:
            inputs = [_alone(each, floats, values) for each in node.args]
            error = relative_error(floats[node.name], node.target(*inputs, **node.kwargs))
        found.append(_Layer(module_name(node), _KINDS[node.target], values[node.args[1]], scheme, error))
    return found


def _scheme(linear: Node) -> str:
    """How a product computes, by what makes floats of its operands."""
    if not _is_dequantized(linear.args[1]):
        return "float32"
    return "int8-dynamic" if "per_token" in str(getattr(linear.args[0], "target", "")) else "int8"


def _is_dequantized(node: Any) -> bool:
    return isinstance(node, Node) and "dequantize" in str(node.target)


def _alone(argument: Any, floats: dict[str, Any], values: dict[Node, Any]) -> Any:
    """The value of an argument in the converted graph, were everything before it float: what quantises and
    dequantises is computed again.
    """
    if not isinstance(argument, Node):
        return argument
    if argument.name in floats:
        return floats[argument.name]
    if argument.op != "call_function":
        return values[argument]
    run: Any = argument.target
    return run(*(_alone(each, floats, values) for each in argument.args), **argument.kwargs)
