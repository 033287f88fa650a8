"""`merge_common_subexpressions`: equal calls become one, and only equal ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from pteron.exir.passes import merge_common_subexpressions as merge
from tests.exir.passes.pass_case import PassCase
from tests.exir.small_models import Branches, random


def _merged(function: Callable[..., Any], *args: Any, **options: Any) -> PassCase:
    return PassCase(function, args or (random(3, 4),), merge, **options).check()


def test_equal_chains_become_one() -> None:
    case = _merged(lambda x: (x.sin() * 2).exp() + (x.sin() * 2).exp())
    assert [name.split(".")[1] for name in case.calls] == ["sin", "mul", "exp", "add"]


def test_results_taken_one_by_one_are_merged() -> None:
    case = _merged(lambda x: x.split(2, 1)[0] + x.split(2, 1)[1])
    assert case.calls.count("aten.split_with_sizes_copy.default") == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.sum(0) + x.sum(1, keepdim=True).sum(0),
        lambda x: x.clamp(min=0.0).exp() + x.clamp(min=-0.0).exp(),
        lambda x: x.to(torch.float64).sin().float() + x.to(torch.float16).float(),
        lambda x: x.pow(2).sin() + x.pow(2.0).sin(),
        lambda x: x.softmax(0).sin() + x.softmax(1).sin(),
    ],
)
def test_calls_that_differ_in_an_argument_stay(function: Callable[..., Any]) -> None:
    case = _merged(function)
    assert len(case.calls) == len(case.calls_before)


def test_random_numbers_are_drawn_twice() -> None:
    case = PassCase(lambda x: torch.rand(3) - torch.rand(3) + x, (random(3),), merge)
    assert case.calls.count("aten.rand.default") == 2


def test_outputs_are_tensors_of_their_own() -> None:
    case = _merged(lambda x: (x.sin(), x.sin(), x.sin() + 1))
    assert case.calls.count("aten.sin.default") == 2


class Updated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = self.state * 2
        self.state.add_(x)
        return before + self.state * 2


def test_reads_before_and_after_an_update_differ() -> None:
    PassCase(Updated(), (random(3),), merge).check((random(3) + 1,), (random(3),))


def test_quantise_and_dequantise_stay_in_front_of_each_reader() -> None:
    import torch.ao.quantization.fx._decomposed

    def quantized(x: torch.Tensor) -> torch.Tensor:
        q = torch.ops.quantized_decomposed.quantize_per_tensor(x, 0.1, 0, -128, 127, torch.int8)
        dequantize = torch.ops.quantized_decomposed.dequantize_per_tensor
        first, second = (dequantize(q, 0.1, 0, -128, 127, torch.int8) for _ in range(2))
        return first.sin() + second.cos()

    case = PassCase(quantized, (random(3),), merge)
    assert case.calls == case.calls_before


def test_branches_are_merged_each_by_itself() -> None:
    def chosen(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
        return torch.cond(flag, lambda x: x.sin() + x.sin(), lambda x: x.sin() - 1, (x,)) + x.sin()

    case = PassCase(chosen, (random(3), torch.tensor(True)), merge)
    case.check((random(3), torch.tensor(False)))
    module = case.after.exported_program().graph_module
    sines = [
        sum(str(node.target) == "aten.sin.default" for node in branch.graph.nodes)
        for branch in module.children()
    ]
    assert sorted(sines) == [1, 1]
    PassCase(Branches(), (random(4, 4), torch.tensor(True), torch.tensor(True)), merge).check()


def test_numbers_that_vary() -> None:
    rows = torch.export.Dim("rows", min=1, max=8)
    case = _merged(
        lambda x: (
            x.reshape(-1, 2).sin().reshape(x.shape[0], 4) + x.reshape(-1, 2).sin().reshape(x.shape[0], 4)
        ),
        random(3, 4),
        dynamic_shapes=({0: rows},),
    ).check((random(8, 4),))
    assert case.calls.count("aten.sin.default") == 1


def test_a_large_tensor_made_from_nothing_is_not_kept_alive() -> None:
    def masks(x: torch.Tensor) -> torch.Tensor:
        return (x + torch.full((200, 200), 2.0)).sin() + torch.full((200, 200), 2.0)

    assert _merged(masks, random(200, 200)).calls.count("aten.full.default") == 2


def test_the_instruction_carries_the_handles_of_both_with_their_lines() -> None:
    class Twice(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            first = x.sin()
            second = x.sin()
            return first * second

    case = PassCase(Twice(), (random(3),), merge)
    manager = case.after.to_executorch()
    assert list(manager.debug_handle_map["forward"].values()) == [[1, 2], 3]
    named = {str(item.key): bytes(item.data) for item in manager.executorch_program.named_data}
    (debug,) = (json.loads(data) for key, data in named.items() if key.startswith("pteron.debug"))
    handles = debug["methods"]["forward"]["handles"]
    assert handles["2"]["line"] == handles["1"]["line"] + 1
