"""PT2E with `PteronQuantizer`: capture, calibrate, convert, and once more without the layers that suffer."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
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
from pteron.quant.torchao_parts import torchao

_KINDS = {**{op: op._schema.name.split("::")[1] for op in CONVOLUTIONS}, LINEAR: "linear"}


@dataclass
class _Layer:
    """A product of a converted graph: its name among the modules, and what it differs by from float."""

    name: str
    kind: str
    weight: torch.Tensor
    is_quantized: bool
    error: float | None


def quantize_static(
    model: nn.Module,
    examples: tuple[Any, ...],
    calibration: Iterable[Sequence[Any]],
    limit: float,
    leave: frozenset[str],
) -> tuple[nn.Module, list[LayerReport]]:
    """The converted graph, and its layers. Layers beyond `limit` are left in float in a second conversion."""
    batches = [tuple(batch) for batch in calibration]
    if not batches:
        raise ValueError("quantize: calibration= has no inputs, expected some that are like those of use")
    captured = torch.export.export(model, examples).module()
    converted, layers = _converted(captured, examples, batches, leave)
    if not any(layer.is_quantized for layer in layers):
        raise ExportError(
            'quantize: the model has no layer that scheme="int8" quantises',
            expected="convolutions (1-d, 2-d) or linear layers with float32 weights of their own",
        )
    errors = {layer.name: layer.error for layer in layers if layer.error is not None}
    reasons = {
        name: f"error {error:.1%} above {limit:.1%}" for name, error in errors.items() if not error <= limit
    }
    if reasons:
        converted, layers = _converted(captured, examples, batches, leave | reasons.keys())
    return converted, [_report(layer, errors.get(layer.name), reasons) for layer in layers]


def _report(layer: _Layer, error: float | None, reasons: dict[str, str]) -> LayerReport:
    before = 4 * layer.weight.numel()
    if layer.is_quantized:
        after = layer.weight.numel() + 4 * layer.weight.shape[0]
        return LayerReport(layer.name, layer.kind, "int8", before, after, error)
    reason = reasons.get(layer.name, "as asked, or its weight is shared")
    return LayerReport(layer.name, layer.kind, "float32", before, before, error, reason)


def _converted(
    captured: nn.Module, examples: tuple[Any, ...], batches: list[tuple[Any, ...]], leave: frozenset[str]
) -> tuple[GraphModule, list[_Layer]]:
    flow = torchao("quantization.pt2e.quantize_pt2e")
    prepared = flow.prepare_pt2e(copy.deepcopy(captured), PteronQuantizer(leave=leave))
    # Batch norms are folded by now, and observers change no value. Those of the copy see the examples.
    floats = {node.name: value for node, value in _values(copy.deepcopy(prepared), examples).items()}
    for batch in batches:
        prepared(*batch)
    converted: GraphModule = flow.convert_pt2e(prepared)
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
        is_quantized = _is_dequantized(node.args[1])
        if is_quantized and node.name in floats:
            inputs = [_alone(each, floats, values) for each in node.args]
            error = relative_error(floats[node.name], node.target(*inputs, **node.kwargs))
        found.append(
            _Layer(module_name(node), _KINDS[node.target], values[node.args[1]], is_quantized, error)
        )
    return found


def _is_dequantized(node: Any) -> bool:
    return isinstance(node, Node) and "dequantize" in str(node.target)


def _alone(argument: Any, floats: dict[str, Any], values: dict[Node, Any]) -> Any:
    """The value of an argument in the converted graph, were everything before it float."""
    if not isinstance(argument, Node):
        return argument
    quantize = argument.args[0] if _is_dequantized(argument) else None
    source = quantize.args[0] if isinstance(quantize, Node) and quantize.args else None
    if not isinstance(quantize, Node) or not isinstance(source, Node) or source.name not in floats:
        return values[argument]
    run: Any = quantize.target
    back: Any = argument.target
    integers = run(floats[source.name], *quantize.args[1:], **quantize.kwargs)
    return back(integers, *argument.args[1:], **argument.kwargs)
