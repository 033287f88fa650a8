"""torchao's dynamic flows: rows that are quantised at run time are multiplied as bytes."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torchao.quantization import (
    Int8DynamicActivationInt8WeightConfig,
    Int8DynamicActivationIntxWeightConfig,
    PerAxis,
    PerGroup,
    quantize_,
)

import pteron
from pteron.exir import ExecutorchBackendConfig, to_edge

_INT4: torch.dtype = getattr(torch, "int4")  # noqa: B009 -- torch's stubs do not know it


def _by(dtype: torch.dtype, granularity: PerAxis | PerGroup) -> Int8DynamicActivationIntxWeightConfig:
    return Int8DynamicActivationIntxWeightConfig(weight_dtype=dtype, weight_granularity=granularity)


_CONFIGURATIONS = {
    "int8": (_by(torch.int8, PerAxis(0)), "integer.linear.s8_nr32k4_v1.rounded_rows."),
    "int8, symmetric": (
        Int8DynamicActivationInt8WeightConfig(),
        "integer.linear.s8_nr32k4_v1.symmetric_rows.",
    ),
    "int4, rows": (_by(_INT4, PerAxis(0)), "integer.linear.u4_nr32k8_v1.rows."),
    "int4, groups of 32": (_by(_INT4, PerGroup(32)), "integer.linear.u4_nr32k8_v1.rows."),
    "int4, groups of 64": (_by(_INT4, PerGroup(64)), "integer.linear.u4_nr32k8_v1.rows."),
}


class Layers(nn.Module):
    """Two layers that read the same rows, and whose results take much less memory than these."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(192, 40)
        self.second = nn.Linear(192, 24, bias=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        # Rows of the program's own: results may be planned over its inputs.
        rows = -x
        return torch.relu(self.first(rows)), self.second(rows)


def _quantised(name: str) -> nn.Module:
    torch.manual_seed(0)
    model = Layers().eval()
    quantize_(model, _CONFIGURATIONS[name][0])
    return model


def _rows(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)) * 3


def _check(program: pteron.Program, model: nn.Module, x: torch.Tensor) -> None:
    # Sums of 192 products in another order.
    for got, want in zip(program.run("forward", x), model(x), strict=True):
        torch.testing.assert_close(got, want.detach(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", _CONFIGURATIONS)
@pytest.mark.parametrize("shape", [(7, 192), (1, 192), (2, 3, 192), (1, 0, 192)])
def test_rows_are_multiplied_as_bytes(name: str, shape: tuple[int, ...]) -> None:
    model, x = _quantised(name), _rows(*shape)
    if shape == (1, 0, 192):
        x_example, dynamic = _rows(1, 5, 192), ({1: torch.export.Dim("rows", max=8)},)
        result = pteron.export(model, (x_example,), report=False, dynamic_shapes=dynamic)
    else:
        result = pteron.export(model, (x,), report=False)
    program = pteron.load(result.buffer)
    kernels = program.kernels()
    assert sum(kernel.startswith(_CONFIGURATIONS[name][1]) for kernel in kernels) == 2, kernels
    # Nothing is left of what quantised them; views stay.
    assert not any(kernel.startswith(("amin", "cast", "elementwise")) for kernel in kernels), kernels
    if shape == (1, 0, 192):
        # torchao itself fails without rows.
        assert [tuple(each.shape) for each in program.run("forward", x)] == [(1, 0, 40), (1, 0, 24)]
        for rows in (1, 8, 3):
            _check(program, model, _rows(1, rows, 192))
    else:
        _check(program, model, x)


@pytest.mark.parametrize("name", _CONFIGURATIONS)
def test_rows_of_one_sign_of_zeros_and_large_ones(name: str) -> None:
    model, x = _quantised(name), _rows(6, 192)
    x[0], x[1], x[2], x[3] = x[0].abs(), -x[1].abs(), 0.0, x[3] * 1e4
    x[4, ::7] = 0.0
    result = pteron.export(model, (x,), report=False)
    got = pteron.load(result.buffer).run("forward", x)
    for found, want in zip(got, model(x), strict=True):
        size = want.detach().abs().amax(1, keepdim=True).clamp(min=1.0)
        assert float(((found - want.detach()) / size).abs().max()) < 2e-6


@pytest.mark.parametrize("name", ["int8, symmetric", "int4, groups of 32"])
def test_the_rewrite_has_a_switch(name: str) -> None:
    model, x = _quantised(name), _rows(7, 192)
    result = pteron.export(model, (x,), report=False)
    runtime = pteron.Runtime(disabled_rules=["multiply_quantised_rows"])
    program = pteron.load(result.buffer, runtime=runtime)
    _check(program, model, x)
    assert "integer" not in program.plan_listing("forward")


@pytest.mark.parametrize("name", _CONFIGURATIONS)
def test_packed_programs_hold_what_the_kernels_read(name: str) -> None:
    model, x = _quantised(name), _rows(7, 192)
    edge = to_edge(torch.export.export(model, (x,)))
    buffer = edge.to_executorch(ExecutorchBackendConfig(packed_weights=True)).buffer
    program = pteron.load(buffer)
    _check(program, model, x)
    assert program.pack_stats == (0, 0)


def test_steps_of_a_transformer_pass_the_check_of_an_export() -> None:
    from transformers import DistilBertConfig, DistilBertModel

    torch.manual_seed(0)
    config = DistilBertConfig(n_layers=3, dim=256, hidden_dim=1024, n_heads=8, vocab_size=1000)
    model: nn.Module = DistilBertModel(config)
    model.eval()
    quantize_(model, Int8DynamicActivationInt8WeightConfig())
    result = pteron.export(model, (torch.randint(0, 1000, (1, 37)),), report=False)
    # Some 2e-3: PyTorch's softmax differs by a last bit, which decides between two integers.
    (output,) = result.report.check.outputs
    assert output.difference < output.allowed == 5e-2
    kernels = result.load().kernels()
    assert sum("symmetric_rows" in kernel for kernel in kernels) == 18, kernels
