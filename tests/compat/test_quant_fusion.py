"""`QuantFusionPass`: quantised tables stay quantised, and what only moves elements moves quantised ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from pteron.compat.executorch.exir.passes import QuantFusionPass, quant_fusion_and_const_prop_pass
from pteron.compat.executorch.exir.passes.constant_prop_pass import constant_prop_pass

import pteron
from pteron.exir import EdgeProgramManager, to_edge

_q = torch.ops.quantized_decomposed
NUMBERS = (0.1, 7, 0, 255, torch.uint8)


def edge_of(model: torch.nn.Module, *inputs: torch.Tensor) -> EdgeProgramManager:
    return to_edge(torch.export.export(model, inputs))


def operators(manager: EdgeProgramManager) -> list[str]:
    graph = manager.exported_program().graph
    return [str(node.target) for node in graph.nodes if node.op == "call_function"]


def run(manager: EdgeProgramManager, *inputs: torch.Tensor) -> torch.Tensor:
    method = pteron.load(manager.to_executorch().buffer).load_method("forward")
    return torch.from_numpy(method.execute([each.numpy() for each in inputs])[0].copy())


class _Table(torch.nn.Module):
    """An embedding of a table of 6 rows of 8 elements, in groups of 4."""

    def __init__(self, bits: int, zero_point: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.limits = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        self.dtype = dtype
        random = torch.Generator().manual_seed(bits)
        low, high = self.limits
        self.register_buffer("table", torch.randint(low, high + 1, (6, 8), generator=random).to(torch.int8))
        self.register_buffer("scales", torch.rand(6, 2, generator=random) + 0.1)
        self.register_buffer("zero_points", torch.full((6, 2), zero_point, dtype=torch.int8))

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        weight = torch.ops.torchao.dequantize_affine(
            self.table,
            [1, 4],
            self.scales,
            self.zero_points,
            torch.int8,
            *self.limits,
            output_dtype=self.dtype,
        )
        return torch.nn.functional.embedding(indices, weight)


@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize("zero_point", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_table_of_torchao_is_looked_up_quantised(bits: int, zero_point: int, dtype: torch.dtype) -> None:
    model, indices = _Table(bits, zero_point, dtype), torch.tensor([0, 5, 3, 3])
    edge = edge_of(model, indices)
    assert "torchao.dequantize_affine.default" in operators(edge)
    quant_fusion_and_const_prop_pass(edge.exported_program())
    name = "embedding_byte" if bits == 8 else f"embedding_{bits}bit"
    [found] = operators(edge)
    assert found.startswith(f"quantized_decomposed.{name}.")
    [call] = [node for node in edge.exported_program().graph.nodes if node.op == "call_function"]
    assert (call.args[2] is None) is (zero_point == 0)
    assert call.args[0].meta["val"].shape == (6, 8 * bits // 8)
    torch.testing.assert_close(run(edge, indices), model(indices))


def test_what_no_backend_took_of_torchao_is_decomposed() -> None:
    model, indices = _Table(4, 1, torch.float32), torch.tensor([1, 2])
    torch.testing.assert_close(run(edge_of(model, indices), indices), model(indices))


class _Channels(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.arange(48, dtype=torch.uint8).reshape(6, 8))
        self.register_buffer("scales", torch.rand(6))
        self.register_buffer("zero_points", torch.rand(6))

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        weight = _q.dequantize_per_channel(self.table, self.scales, self.zero_points, 0, 0, 255, torch.uint8)
        return torch.nn.functional.embedding(indices, weight)


def test_a_table_with_a_scale_for_each_row_is_looked_up_quantised() -> None:
    model, indices = _Channels(), torch.tensor([4, 0])
    edge = edge_of(model, indices).transform([QuantFusionPass()])
    assert operators(edge) == ["quantized_decomposed.embedding_byte.default"]
    torch.testing.assert_close(run(edge, indices), model(indices))


class _Moved(torch.nn.Module):
    def __init__(self, move: Callable[[torch.Tensor], torch.Tensor], after: tuple[object, ...]) -> None:
        super().__init__()
        self.move = move
        self.after = after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _q.quantize_per_tensor(self.move(_q.dequantize_per_tensor(x, *NUMBERS)), *self.after)


@pytest.mark.parametrize(
    "move", [lambda x: x.mT, lambda x: x[:, 1:], lambda x: x.reshape(-1), lambda x: torch.cat([x, x])]
)
def test_elements_are_moved_quantised(move: Callable[[torch.Tensor], torch.Tensor]) -> None:
    model, x = _Moved(move, NUMBERS), torch.arange(12, dtype=torch.uint8).reshape(3, 4)
    edge = edge_of(model, x).transform([QuantFusionPass()])
    assert not [each for each in operators(edge) if "quantize" in each]
    assert torch.equal(run(edge, x), model(x))


@pytest.mark.parametrize(
    ("move", "after"),
    [
        (lambda x: x.mT, (0.2, 7, 0, 255, torch.uint8)),
        (lambda x: x.mT * 2, NUMBERS),
        (lambda x: torch.cat([x, x.sin()]), NUMBERS),
    ],
)
def test_other_numbers_and_arithmetic_stay(
    move: Callable[[torch.Tensor], torch.Tensor], after: tuple[object, ...]
) -> None:
    x = torch.arange(12, dtype=torch.uint8).reshape(3, 4)
    edge = edge_of(_Moved(move, after), x)
    assert operators(edge.transform([QuantFusionPass()])) == operators(edge)


def test_quantised_weights_are_folded_before_the_edge_dialect_and_kept_in_it() -> None:
    captured = torch.export.export(_Channels(), (torch.tensor([1, 2]),))
    edge = to_edge(captured)
    constant_prop_pass(edge.exported_program())
    assert "quantized_decomposed.dequantize_per_channel.default" in operators(edge)
    folded = to_edge(constant_prop_pass(captured))
    assert operators(folded) == ["aten.embedding.default"]
    torch.testing.assert_close(run(folded, torch.tensor([4, 0])), _weights(folded)[[4, 0]])


def _weights(edge: EdgeProgramManager) -> torch.Tensor:
    [weight] = edge.exported_program().constants.values()
    return weight
