"""Operators that a partitioner keeps whole, through the demo backend's `preprocess`."""

from __future__ import annotations

import json

import pytest
import torch
from torch.nn import functional

import pteron
from pteron.backends.demo import NonDecompTestPartitioner, register_demo_backends
from pteron.backends.demo.compiler_demo_format import read_blob, wiring_key
from pteron.exir import to_edge, to_edge_transform_and_lower
from pteron.exir.backend.lowered_backend_module import LoweredBackendModule, get_lowered_backend_modules
from tests.backend.lowering_cases import delegate_calls, names


class Attention(torch.nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(q * 1.5, k, v).relu()


class Upsampling(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.interpolate(x.relu(), scale_factor=(2.0, 3.0), mode="nearest") + 1


class UpsamplingToSize(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.interpolate(x.relu(), size=(7, 5), mode="nearest") + 1


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


_QKV = tuple(_random(1, 2, 4, 8) for _ in range(3))
_IMAGE = (_random(1, 3, 4, 5),)
_CASES = [
    (Attention(), _QKV, "aten.scaled_dot_product_attention.default", 64, [0, 1, 2]),
    (Upsampling(), _IMAGE, "aten.upsample_nearest2d.vec", 360, [0, {"number": 2.0}, {"number": 3.0}]),
    (UpsamplingToSize(), _IMAGE, "aten.upsample_nearest2d.vec", 105, [0, {"number": 7.0}, {"number": 5.0}]),
]


def _lowered(
    model: torch.nn.Module, inputs: tuple[torch.Tensor, ...]
) -> tuple[pteron.exir.EdgeProgramManager, LoweredBackendModule]:
    program = torch.export.export(model, inputs)
    manager = to_edge_transform_and_lower(program, partitioner=NonDecompTestPartitioner())
    (lowered,) = get_lowered_backend_modules(manager.exported_program().graph_module)
    return manager, lowered


@pytest.mark.parametrize(("model", "inputs", "operator", "numel", "arguments"), _CASES)
def test_preprocess_gets_the_whole_operator(model, inputs, operator, numel, arguments) -> None:
    plain = to_edge(torch.export.export(model, inputs)).exported_program()
    # Upsampling is core ATen, attention is whole for the sake of the partitioner only.
    assert (operator in names(plain)) == isinstance(model, (Upsampling, UpsamplingToSize))

    manager, lowered = _lowered(model, inputs)
    assert len(delegate_calls(manager.exported_program())) == 1
    (instruction,) = read_blob(lowered.processed_bytes)
    assert (instruction.operator, instruction.numel, instruction.dtype) == (
        operator,
        str(numel),
        "torch.float32",
    )
    assert lowered.meta == {
        "debug_handle_map": {instruction.debug_handle: (instruction.debug_handle,)},
        "_delegate_info_meta": "test",
    }
    data = lowered.named_data_store_output
    assert data is not None
    index = data.pte_data[wiring_key(lowered.processed_bytes)].buffer_index
    wiring = json.loads(data.buffers[index])
    assert wiring["operations"] == [{"arguments": arguments}]
    torch.testing.assert_close(manager.exported_program().module()(*inputs), model(*inputs))


@pytest.mark.parametrize(("model", "inputs", "operator", "numel", "arguments"), _CASES)
def test_the_run_half_refuses_it_with_its_place(model, inputs, operator, numel, arguments) -> None:
    manager, _ = _lowered(model, inputs)
    runtime = pteron.Runtime()
    register_demo_backends(runtime)
    program = pteron.load(manager.to_executorch().buffer, runtime=runtime)
    with pytest.raises(pteron.DelegateError, match=rf"demo::{operator}.* is not supported") as caught:
        program.run("forward", *inputs)
    assert caught.value.operator == operator
    line = type(model).forward.__code__.co_firstlineno + 1
    assert f"test_kept_whole.py:{line} ({type(model).__name__})" in str(caught.value)


@pytest.mark.filterwarnings("ignore:The tensor attributes:UserWarning")
def test_operators_that_come_out_of_another_one_are_kept_too() -> None:
    model = torch.nn.LSTM(4, 3, batch_first=True).eval()
    inputs = (_random(1, 2, 4),)
    manager = to_edge_transform_and_lower(
        torch.export.export(model, inputs), partitioner=NonDecompTestPartitioner()
    )
    program = manager.exported_program()
    # The two linear layers of one step, for each of the two steps; those over all steps are one.
    linear = [names(lowered.original_module) for lowered in get_lowered_backend_modules(program.graph_module)]
    assert linear == [["aten.linear.default"]] * len(linear)
    assert len(linear) >= 3
    assert not any("addmm" in name for name in names(program))
    with torch.no_grad():
        torch.testing.assert_close(program.module()(*inputs), model(*inputs))
