"""Linear layers whose weights alone are quantised keep them so when they run, and agree with eager."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import pteron
from pteron.exir import ExecutorchBackendConfig, to_edge
from tests.models.exporters import BY_NAME
from tests.support.goldens import compare

_GOLDEN = Path(__file__).parent / "golden_plans"
_RULE = "fuse_weight_only"


class Layers(nn.Module):
    """Two layers of more than a mebibyte of floats each: exporters leave it to the run half to dequantise."""

    def __init__(self, width: int = 576, hidden: int = 512) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.down(torch.relu(self.up(x))) + x)


def _quantised(scheme: str) -> nn.Module:
    torch.manual_seed(0)
    model = Layers().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantization = pytest.importorskip("torchao.quantization")
        groups = quantization.granularity
        intx = quantization.IntxWeightOnlyConfig
        asymmetric = quantization.quant_primitives.MappingType.ASYMMETRIC
        rows = groups.PerAxis(0)
        config = {
            "int8": lambda: intx(weight_dtype=torch.int8, granularity=groups.PerAxis(0)),
            "int8 groups": lambda: intx(weight_dtype=torch.int8, granularity=groups.PerGroup(64)),
            "int4 groups": lambda: intx(weight_dtype=torch.int4, granularity=groups.PerGroup(32)),
            "int4 zeros": lambda: intx(
                weight_dtype=torch.int4, granularity=groups.PerGroup(32), mapping_type=asymmetric
            ),
            "int4 rows": lambda: intx(weight_dtype=torch.int4, granularity=rows),
            "int4 groups of 64": lambda: intx(weight_dtype=torch.int4, granularity=groups.PerGroup(64)),
            "int8 activations, int4": lambda: quantization.Int8DynamicActivationIntxWeightConfig(
                weight_dtype=torch.int4, weight_granularity=groups.PerGroup(32)
            ),
            "int2 groups": lambda: intx(weight_dtype=torch.int2, granularity=groups.PerGroup(32)),
            "int8 scaled behind": quantization.Int8WeightOnlyConfig,
        }[scheme]()
        quantization.quantize_(model, config)
    return model


# The step of a layer, and the bits of a weight.
_SCHEMES = {
    "int8": ("weight-only linear", 8),
    "int8 groups": ("weight-only linear, groups of 64", 8),
    "int4 groups": ("weight-only linear, groups of 32", 4),
    "int4 zeros": ("weight-only linear, groups of 32, zero points", 4),
    "int8 scaled behind": ("weight-only linear", 8),
}


def _agree(buffer: bytes, model: nn.Module, x: Tensor, disabled: list[str]) -> pteron.Program:
    with torch.no_grad():
        expected = model(x)
    program = pteron.load(buffer, runtime=pteron.Runtime(num_threads=1, disabled_rules=disabled))
    got = program.run("forward", x)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))
    return program


# The peer has no out variants for torchao's operators, which the last scheme does without.
_CASES = [
    *[pytest.param("pteron", scheme) for scheme in _SCHEMES],
    pytest.param("executorch", "int8 scaled behind", marks=pytest.mark.peer),
]


@pytest.mark.parametrize("rows", [(1, 1), (2, 5)])
@pytest.mark.parametrize(("exporter", "scheme"), _CASES)
def test_weights_stay_quantised(exporter: str, scheme: str, rows: tuple[int, int]) -> None:
    model = _quantised(scheme)
    x = torch.randn(*rows, 576)
    buffer = BY_NAME[exporter](torch.export.export(model, (x,)))
    program = _agree(buffer, model, x, [])
    step, bits = _SCHEMES[scheme]
    plan = program.plan_listing("forward")
    assert plan.count(f"plan {step}") == 2, plan
    assert f"{step} + residual" in plan
    # The peer's plan puts the other result where the product cannot write it.
    assert (f"{step} + clamp(0, inf)" in plan) == (exporter == "pteron")
    assert not any(name in plan for name in ("_to_copy", "_to_dim_order_copy", "aten::mul", "permute_copy"))
    if rows == (2, 5):
        compare(plan, _GOLDEN / f"weight_only_{scheme.replace(' ', '_')}_{exporter}.txt")
    weights = 2 * 576 * 512 * bits // 8
    # Scales, and zero points, are packed besides.
    assert weights < program.pack_stats[1] < 1.6 * weights
    assert "weight-only" not in _agree(buffer, model, x, [_RULE]).plan_listing("forward")


@pytest.mark.parametrize(("scheme", "packs"), [("int8 groups", 4), ("int4 groups", 4), ("int4 zeros", 6)])
def test_packs_of_quantised_weights_are_stored(scheme: str, packs: int) -> None:
    model = _quantised(scheme)
    x = torch.randn(1, 576)
    edge = to_edge(torch.export.export(model, (x,)))
    program = _agree(edge.to_executorch(ExecutorchBackendConfig(packed_weights=True)).buffer, model, x, [])
    assert program.pack_stats == (0, 0)
    assert program.stored_pack_stats[0] == packs


# Bytes of the scales and zero points of both layers, in f32.
_PARAMETERS = {
    "int4 rows": 4 * (512 + 576),
    "int4 groups": 4 * 2 * 576 * 512 // 32,
    "int4 groups of 64": 4 * 2 * 576 * 512 // 64,
    "int4 zeros": 2 * 4 * 2 * 576 * 512 // 32,
    "int8 activations, int4": 4 * 2 * 576 * 512 // 32,
    "int2 groups": 4 * 2 * 576 * 512 // 32,
}


class _Floats(nn.Module):
    """The layers with weights that were dequantised before the export."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.layers = Layers().eval()
        for name in ("up", "down"):
            layer = getattr(model, name)
            getattr(self.layers, name).weight = nn.Parameter(layer.weight.dequantize())
        self.layers.up.bias = model.up.bias

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


@pytest.mark.parametrize("scheme", _PARAMETERS)
def test_four_bits_take_four_bits_in_the_file(scheme: str) -> None:
    model = _quantised(scheme)
    x = torch.randn(5, 576)
    exported = torch.export.export(model, (x,))
    buffer = to_edge(exported).to_executorch().buffer
    weights = 2 * 576 * 512 // 2
    assert weights < len(buffer) - _PARAMETERS[scheme] < weights + 24_000
    program = pteron.load(buffer)
    assert program.operators("forward").count("quantized_decomposed::embedding_4bit.out") == 1
    got = program.run("forward", x)
    group = {"int4 rows": "", "int4 groups of 64": ", groups of 64"}.get(scheme, ", groups of 32")
    assert program.plan_listing("forward").count(f"weight-only linear{group}") == 2
    plain = pteron.load(buffer, runtime=pteron.Runtime(disabled_rules=["all"]))
    assert "embedding_4bit" in plain.plan_listing("forward")
    unfused = plain.run("forward", x)
    if scheme == "int8 activations, int4":
        # A number between two steps may fall to either side.
        torch.testing.assert_close(got, unfused, rtol=0, atol=5e-3 * float(unfused.abs().max()))
        return
    # Five rows: the products with floats, rounded as `dequantize` rounds them.
    floats = to_edge(torch.export.export(_Floats(model).eval(), (x,))).to_executorch().buffer
    for disabled, result in (([], got), (["all"], unfused)):
        twin = pteron.load(floats, runtime=pteron.Runtime(disabled_rules=disabled))
        assert torch.equal(result, twin.run("forward", x)), disabled


def test_an_input_may_be_named_as_python_names_a_function() -> None:
    quantization = pytest.importorskip("torchao.quantization")
    # Its input is `input`.
    model = nn.Sequential(nn.Linear(96, 64), nn.ReLU()).eval()
    x = torch.randn(3, 96)
    per_row = quantization.granularity.PerAxis(0)
    quantization.quantize_(
        model, quantization.IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=per_row)
    )
    _agree(to_edge(torch.export.export(model, (x,))).to_executorch().buffer, model, x, [])


def test_rows_may_change() -> None:
    model = _quantised("int4 zeros")
    rows = torch.export.Dim("rows", min=1, max=64)
    exported = torch.export.export(model, (torch.randn(8, 576),), dynamic_shapes=({0: rows},))
    program = pteron.load(to_edge(exported).to_executorch().buffer)
    for count in (64, 1, 3, 7):
        x = torch.randn(count, 576)
        with torch.no_grad():
            expected = model(x)
        got = program.run("forward", x)
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))
    assert program.plan_listing("forward").count("weight-only linear") == 2
