"""PT2E's dynamic form: linear layers compute with integers, by a scale that each call finds."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pteron
from pteron.exir import to_edge
from tests.quant.flows import PTERON, TORCHAO

pytest.importorskip("torchao", reason="needs torchao")

_STEP = "integer linear of rows with one scale to f32"


def _quantizer(name: str) -> Any:
    module = import_module(name)
    if name == PTERON:
        return module.PteronQuantizer(is_dynamic=True)
    config = module.get_symmetric_quantization_config(is_dynamic=True, is_per_channel=True)
    return module.XNNPACKQuantizer().set_global(config)


def _exported(model: nn.Module, x: Tensor, quantizer: str) -> tuple[bytes, nn.Module]:
    """The file, for any number of rows, and the converted model."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    rows = ({0: torch.export.Dim("rows", min=1, max=64)},)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        captured = torch.export.export(model.eval(), (x,), dynamic_shapes=rows).module()
        prepared = prepare_pt2e(captured, _quantizer(quantizer))
        prepared(x)
        converted = convert_pt2e(prepared)
        exported = torch.export.export(converted, (x,), dynamic_shapes=rows)
        return bytes(to_edge(exported).to_executorch().buffer), converted


@pytest.mark.parametrize("quantizer", [TORCHAO, PTERON])
def test_layers_of_dynamic_models_are_of_integers(quantizer: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(40, 33), nn.ReLU(), nn.Linear(33, 8))
    buffer, _ = _exported(model, torch.randn(7, 40), quantizer)
    program = pteron.load(buffer)
    program.load_method()
    plan = program.plan_listing("forward")
    assert plan.count(_STEP) == 2, plan
    assert "choose_qparams" not in plan
    assert "dequantize" not in plan


@pytest.mark.parametrize("quantizer", [TORCHAO, PTERON])
def test_a_dynamic_layer_agrees_with_eager(quantizer: str) -> None:
    torch.manual_seed(1)
    buffer, converted = _exported(nn.Sequential(nn.Linear(96, 24)), torch.randn(7, 96), quantizer)
    program = pteron.load(buffer, runtime=pteron.Runtime(num_threads=1))
    plain = pteron.load(buffer, runtime=pteron.Runtime(disabled_rules=["all"]))
    for rows in (1, 2, 7, 64):
        x = torch.randn(rows, 96)
        # Zero points in the middle, at both ends, and the least scale.
        for inputs in (x, x.abs() + 1, -x.abs(), x * 1e-7, torch.zeros_like(x)):
            with torch.no_grad():
                expected = converted(inputs)
            for got in (program.run("forward", inputs), plain.run("forward", inputs)):
                limit = 1e-6 * max(float(expected.abs().max()), 1.0)
                torch.testing.assert_close(got, expected, rtol=0, atol=limit)
    assert _STEP in program.plan_listing("forward")
