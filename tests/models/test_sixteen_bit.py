"""Linear layers of 16-bit floats keep their weights so, and round once."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import pteron
from pteron.exir import ExecutorchBackendConfig, to_edge

_FORMATS = {torch.bfloat16: "bf16_nr32k2_v1", torch.float16: "f16_nr32_v1"}


def _layer(dtype: torch.dtype) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(576, 320).eval().to(dtype)


def _check(model: nn.Linear, x: Tensor, got: Tensor) -> None:
    """Half a unit of the last place of the exact result, and one rounding of float32 for each term."""
    with torch.no_grad():
        weight, bias = model.weight.double(), model.bias.double()
        exact = x.double() @ weight.T + bias
        size = x.double().abs() @ weight.T.abs() + bias.abs()
    sums = 580 * 2.0**-24 * size
    limit = (exact.abs() + sums) * torch.finfo(x.dtype).eps / 2 + 2.0**-25 + sums
    assert got.dtype == x.dtype
    assert bool(((got.double() - exact).abs() <= limit).all())


@pytest.mark.parametrize("dtype", _FORMATS, ids=str)
def test_a_layer_rounds_once_for_any_number_of_rows(dtype: torch.dtype) -> None:
    model = _layer(dtype)
    rows = torch.export.Dim("rows", min=1, max=64)
    exported = torch.export.export(model, (torch.randn(8, 576, dtype=dtype),), dynamic_shapes=({0: rows},))
    program = pteron.load(to_edge(exported).to_executorch().buffer)
    for count in (64, 1, 3, 5, 17):
        x = torch.randn(count, 576, dtype=dtype)
        _check(model, x, program.run("forward", x))
    assert program.pack_stats == (1, 576 * 320 * 2)


@pytest.mark.parametrize("dtype", _FORMATS, ids=str)
def test_packs_are_stored(dtype: torch.dtype) -> None:
    model = _layer(dtype)
    x = torch.randn(2, 576, dtype=dtype)
    edge = to_edge(torch.export.export(model, (x,)))
    buffer = edge.to_executorch(ExecutorchBackendConfig(packed_weights=True)).buffer
    assert _FORMATS[dtype].encode() in buffer
    program = pteron.load(buffer)
    _check(model, x, program.run("forward", x))
    assert (program.pack_stats, program.stored_pack_stats) == ((0, 0), (1, 576 * 320 * 2))
