"""`pteron.quant`: what becomes integers, the report, and what is refused."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pteron
from pteron.errors import ExportError
from tests.quant.flows import Layers, Network, image, tokens

pytest.importorskip("torchao", reason="needs torchao")

from pteron.quant import LayerReport, PteronQuantizer, QuantizationReport, quantize


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Block(nn.Module):
    """A layer of a transformer, with attention that is written out."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.project = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        q, k, v = (layer(y).view(2, 5, 2, 8).transpose(1, 2) for layer in self.project[:3])
        scores = torch.softmax(q @ k.transpose(2, 3) / 8**0.5, dim=-1)
        x = x + self.project[3]((scores @ v).transpose(1, 2).reshape(2, 5, 16))
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def calibrated(**settings: Any) -> tuple[nn.Module, nn.Module]:
    """The network and its quantised copy."""
    model = Network()
    for _ in range(2):
        model(torch.randn(8, 3, 8, 8))
    batches = [image() for _ in range(4)]
    return model.eval(), quantize(model, image(), batches, "int8", **settings)


def report_of(model: nn.Module) -> QuantizationReport:
    """Its report."""
    report = model.quantization_report
    assert isinstance(report, QuantizationReport)
    return report


def reads(module: nn.Module, name: str) -> list[str]:
    """The targets of what the call `name` of a converted graph reads, and of its only reader."""
    assert isinstance(module, torch.fx.GraphModule)
    node = next(node for node in module.graph.nodes if node.name == name)
    around = [*node.all_input_nodes, *node.users]
    return [str(each.target).removeprefix("quantized_decomposed.") for each in around]


def converted(model: nn.Module, x: Tensor, quantizer: PteronQuantizer) -> torch.fx.GraphModule:
    """The model after PT2E."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    prepared = prepare_pt2e(torch.export.export(model, (x,)).module(), quantizer)
    prepared(x)
    result: torch.fx.GraphModule = convert_pt2e(prepared)
    return result


def test_a_quantised_model_is_small_close_and_exports() -> None:
    model, quantized = calibrated()
    before = copy.deepcopy(model.state_dict())
    report = report_of(quantized)
    assert [(layer.name, layer.kind, layer.scheme) for layer in report.layers] == [
        ("first", "conv2d", "int8"),
        ("depthwise", "conv2d", "int8"),
        ("last", "linear", "int8"),
    ]
    assert all(layer.error is not None and 0 < layer.error < 0.02 for layer in report.layers)
    assert 0 < report.output_error < 0.05
    assert report.bytes < 0.4 * report.float_bytes
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    x = image()
    result = pteron.export(quantized, x, report=False)
    (got,) = pteron.load(result.buffer).load_method("forward").execute(list(x))
    torch.testing.assert_close(torch.as_tensor(got), quantized(*x), rtol=0, atol=1e-5)


def test_concatenation_and_pooling_share_the_scale_of_what_they_read() -> None:
    _, quantized = calibrated()
    assert isinstance(quantized, torch.fx.GraphModule)
    called = {node.name: node for node in quantized.graph.nodes}
    (before,), (after,) = called["cat"].args[0][:1], called["max_pool2d"].users
    assert before.args[1:] == after.args[1:] == called["max_pool2d"].args[0].args[1:]
    other = called["cat"].args[0][1]
    assert other.args[1:] == before.args[1:]


def test_a_block_of_a_transformer_has_integers_where_they_pay() -> None:
    block = converted(Block().eval(), torch.randn(2, 5, 16), PteronQuantizer())
    quantize_, dequantize = "quantize_per_tensor.default", "dequantize_per_tensor.default"
    assert reads(block, "matmul") == [dequantize, dequantize, "aten.div.Tensor"]
    assert reads(block, "gelu") == [dequantize, quantize_]
    assert reads(block, "linear_4")[-1] == quantize_
    # Sums that a norm reads, the norm and softmax are float.
    assert reads(block, "linear_3")[-1] == "aten.add.Tensor"
    assert "aten.layer_norm.default" in reads(block, "add")
    assert reads(block, "softmax")[0] == "aten.div.Tensor"


def test_dynamic_scales_are_for_linear_layers() -> None:
    model, _ = calibrated()
    graph = converted(model, *image(), PteronQuantizer(is_dynamic=True)).graph
    assert (
        sum(node.target is torch.ops.quantized_decomposed.choose_qparams.tensor for node in graph.nodes) == 1
    )


def test_a_sum_that_is_written_over_a_result_is_no_error_of_the_layer() -> None:
    class InPlace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)

        def forward(self, x: Tensor) -> Tensor:
            y = self.one(x)
            y += 100 * x
            return self.other(y)

    report = report_of(quantize(InPlace().eval(), image(), [image()], "int8"))
    assert all(layer.error is not None and layer.error < 0.05 for layer in report.layers)


def test_named_layers_and_those_with_a_large_error_stay_float() -> None:
    _, left = calibrated(leave=["depthwise"])
    assert report_of(left).left_in_float == ("depthwise",)
    # The networks that are made are the same ones if nothing else draws random numbers.
    torch.manual_seed(0)
    _, loose = calibrated()
    *_, second, largest = sorted(report_of(loose).layers, key=lambda layer: layer.error or 0.0)
    assert second.error
    assert largest.error
    limit = (second.error + largest.error) / 2
    torch.manual_seed(0)
    _, strict = calibrated(layer_limit=limit)
    report = report_of(strict)
    (beyond,) = [layer for layer in report.layers if layer.scheme == "float32"]
    assert beyond.name == largest.name
    assert beyond.error == largest.error
    assert beyond.bytes == beyond.float_bytes
    assert beyond.reason == f"error {largest.error:.1%} above {limit:.1%}"
    assert beyond.reason in str(report)


class Spread(nn.Module):
    """Two linear layers that do not read the first channel."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(16, 24), nn.Linear(16, 8)
        with torch.no_grad():
            self.first.weight[:, 0] = self.last.weight[:, 0] = 0

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.first(x[:, :200]), self.last(x[:, 200:])


def test_linear_layers_whose_rows_differ_get_scales_for_each_row() -> None:
    x = torch.randn(2, 220, 16)
    # Of what the first layer reads one row would have a coarse scale, of what the last one reads all rows.
    x[0, 3, 0] = x[:, 200:, 0] = 1e5
    quantized = quantize(Spread().eval(), (x,), [(x,)], "int8")
    report = report_of(quantized)
    assert [(layer.name, layer.scheme) for layer in report.layers] == [
        ("first", "int8-dynamic"),
        ("last", "float32"),
    ]
    first, last = report.layers
    assert first.error is not None
    assert first.error < 0.1
    assert first.bytes == 24 * 16 + 4 * 24
    # The float weight is not kept beside the bytes.
    assert [tuple(each.shape) for each in quantized.parameters() if each.dim() == 2] == [(8, 16)]
    assert last.reason.endswith("above 10.0%")
    program = pteron.load(pteron.export(quantized, (x,), report=False).buffer)
    (kernel,) = [each for each in program.kernels() if "integer" in each]
    assert ".rows." in kernel
    for got, expected in zip(program.load_method("forward").execute([x]), quantized(x), strict=True):
        torch.testing.assert_close(torch.as_tensor(got), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        ("int8-dynamic", [("first", "int8-dynamic"), ("last", "int8-dynamic")]),
        ("int4-weight", [("table", "int8-weight"), ("first", "int4-weight"), ("last", "int4-weight")]),
        ("int4-dynamic", [("table", "int8-weight"), ("first", "int4-dynamic"), ("last", "int4-dynamic")]),
        ("auto", [("first", "int8-dynamic"), ("last", "int8-dynamic")]),
    ],
)
def test_weights_of_layers(scheme: Any, expected: list[tuple[str, str]]) -> None:
    quantized = quantize(Layers().eval(), tokens(), scheme=scheme)
    report = report_of(quantized)
    assert [(layer.name, layer.scheme) for layer in report.layers] == expected
    assert 0 < report.output_error < 0.2
    result = pteron.export(quantized, tokens(), report=False)
    (got,) = pteron.load(result.buffer).load_method("forward").execute(list(tokens()))
    torch.testing.assert_close(torch.as_tensor(got), quantized(*tokens()), rtol=1e-5, atol=1e-5)


def test_layers_of_a_weight_scheme_can_stay_float() -> None:
    quantized = quantize(Layers().eval(), tokens(), scheme="int4-weight", layer_limit=0.03, leave=["table"])
    assert report_of(quantized).left_in_float == ("table", "first", "last")


def test_what_cannot_be_quantised_is_refused() -> None:
    model = Network().eval()
    with pytest.raises(ValueError, match=r"scheme=\"int8\" needs calibration="):
        quantize(model, image(), scheme="int8")
    with pytest.raises(ValueError, match="calibration= has no inputs"):
        quantize(model, image(), [], "int8")
    with pytest.raises(ValueError, match=r"expected a scheme of .* got 'int7'"):
        quantize(model, image(), scheme="int7")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"leave=\['middle'\] are no modules"):
        quantize(model, image(), [image()], leave=["middle"])
    with pytest.raises(ExportError, match="in training mode"):
        quantize(Network(), image(), [image()])
    with pytest.raises(ExportError, match='no layer that scheme="int8" quantises'):
        quantize(nn.ReLU().eval(), image(), [image()], "int8")
    with pytest.raises(ExportError, match='no layer that scheme="int4-weight" quantises'):
        quantize(nn.ReLU().eval(), image(), scheme="int4-weight")
    with pytest.raises(ValueError, match=r"leave=\['middle'\] are no modules with operators"):
        converted(model, *image(), PteronQuantizer(leave=["middle"]))
    with pytest.raises(ValueError, match="is_qat trains static scales"):
        PteronQuantizer(is_qat=True, is_dynamic=True)


def test_a_report_is_a_table() -> None:
    layers = (
        LayerReport("a", "linear", "int8", 400, 110, 0.0123),
        LayerReport("b", "conv2d", "float32", 40, 40, None, "as asked"),
    )
    assert str(QuantizationReport("int8", layers, 0.5)).splitlines() == [
        "layer  kind    scheme   bytes  was  error",
        "a      linear  int8       110  400  1.23%",
        "b      conv2d  float32     40   40         as asked",
        "int8: weights of 440 bytes in 150, error of the outputs 50.00%",
    ]


def test_weights_and_conversions_count_for_their_layers() -> None:
    """A captured quantised model has nodes that torch.export gives to a class of its own."""
    model, quantized = calibrated()
    program = pteron.load(bytes(pteron.export(quantized, image()).buffer))
    content = json.loads(bytes(program.named_data["pteron.debug"]))
    layers = {name for name, _ in model.named_modules()}
    modules = {entry["module"] for entry in content["methods"]["forward"]["handles"].values()}
    assert modules <= layers | {"Network"}
    weights = {layer.name for layer in report_of(quantized).layers}
    assert weights <= modules
