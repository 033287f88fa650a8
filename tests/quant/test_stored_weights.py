"""What files hold of quantised weights: as few bytes as they have, under names of operators with kernels."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn

import pteron
from pteron.exir import to_edge
from tests.quant.flows import FLOWS
from tests.support.own_interpreter import run_alone

pytest.importorskip("torchao", reason="needs torchao")

#: Bytes of a file beside its weights: instructions, names, source lines, scales.
REST = 12_000


class Table(nn.Module):
    """A table with zero points, as torchao's operator reads it."""

    def __init__(self, low: int, high: int, group: int, scale_dtype: torch.dtype) -> None:
        super().__init__()
        self.limits, self.group = (low, high), group
        self.register_buffer("rows", torch.randint(low, high + 1, (9, 16), dtype=torch.int8))
        self.register_buffer("scales", (torch.rand(9, 16 // group) + 0.1).to(scale_dtype))
        zeros = torch.randint(low, high + 1, (9, 16 // group), dtype=torch.int8)
        self.register_buffer("zeros", zeros)

    def forward(self, index: Tensor) -> Tensor:
        import torchao.quantization.quant_primitives  # registers the operator

        assert torchao
        table = torch.ops.torchao.dequantize_affine(
            self.rows, [1, self.group], self.scales, self.zeros, torch.int8, *self.limits
        )
        return nn.functional.embedding(index, table)


def lowered(model: nn.Module, inputs: tuple[Tensor, ...]) -> bytes:
    """The file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return bytes(to_edge(torch.export.export(model, inputs)).to_executorch().buffer)


@pytest.mark.parametrize("scale_dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("low", "high", "group"), [(-128, 127, 16), (-8, 7, 4), (-4, 3, 16), (-2, 1, 8)])
def test_a_table_is_looked_up_as_it_is_stored(
    low: int, high: int, group: int, scale_dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    model, index = Table(low, high, group, scale_dtype), torch.tensor([[0, 8], [3, 3]])
    file = lowered(model, (index,))
    bits = {(-128, 127): "byte", (-2, 1): "2bit"}.get((low, high), "4bit")
    program = pteron.load(file)
    assert program.operators("forward") == (f"quantized_decomposed::embedding_{bits}.out",)
    (result,) = program.load_method("forward").execute([index])
    assert torch.equal(torch.as_tensor(result), model(index))


def test_elements_outside_of_the_stated_range_are_not_packed() -> None:
    torch.manual_seed(0)
    model, index = Table(-8, 7, 16, torch.float32), torch.tensor([[0, 8]])
    model.rows[2, 5] = 90
    program = pteron.load(lowered(model, (index,)))
    assert program.operators("forward") == ("quantized_decomposed::embedding_byte.out",)


@pytest.mark.parametrize(("flow", "nbytes"), [("int8 weights", 128 * 134), ("4-bit table, groups", 20 * 64)])
def test_weights_are_not_stored_as_floats(flow: str, nbytes: int) -> None:
    model, inputs = FLOWS[flow]()
    floats = 20 * 128 * 4 if "table" not in flow else 128 * 134 * 4
    assert len(lowered(model, inputs)) < nbytes + floats + REST


def test_weights_of_float8_are_stored_as_bfloat16() -> None:
    from torchao.quantization import Float8WeightOnlyConfig, quantize_

    torch.manual_seed(0)
    # A container: the input is called `input`, which passes must not rename.
    model = nn.Sequential(nn.Linear(256, 256, bias=False)).eval()
    quantize_(model, Float8WeightOnlyConfig())
    x = torch.randn(2, 256)
    file = lowered(model, (x,))
    assert len(file) < 256 * 256 * 2 + REST
    (result,) = pteron.load(file).load_method("forward").execute([x])
    torch.testing.assert_close(torch.as_tensor(result), model(x), rtol=1e-5, atol=1e-6)


def test_what_is_decomposed_keeps_an_input_called_input() -> None:
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_

    model = nn.Sequential(nn.Linear(32, 4)).eval()
    quantize_(model, Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4))
    program = pteron.load(lowered(model, (torch.randn(2, 32),)))
    assert [spec.name for spec in program.inputs("forward")] == ["input"]


@pytest.mark.peer
def test_the_peer_is_imported_behind_an_export_that_named_its_operators() -> None:
    pytest.importorskip("executorch.exir")
    run_alone(
        """
        import torch, pteron.exir
        table, scales = torch.ones(4, 8, dtype=torch.int8), torch.ones(4, 1)
        look_up = torch.ops.quantized_decomposed.embedding_byte
        def call():
            return look_up(table, scales, None, -128, 127, torch.tensor([1, 2]))
        ours = call()
        import executorch.exir.passes.quant_fusion_pass
        assert torch.equal(ours, call())
        """
    )
