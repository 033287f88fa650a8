"""Layout changes in a row become one, and those that change nothing go."""

from __future__ import annotations

import random as random_module
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from pteron.exir.passes import cancel_permutes, merge_views, prune_empty_tensors, remove_noop_copies
from pteron.exir.passes.cancel_permutes import compose
from tests.exir.passes.pass_case import PassCase
from tests.exir.small_models import random

PASSES = (prune_empty_tensors, cancel_permutes, merge_views, remove_noop_copies)
_PERMUTE = "aten.permute_copy.default"
_VIEW = "aten.view_copy.default"


def _case(function: Callable[..., Any], *args: torch.Tensor, **options: Any) -> PassCase:
    return PassCase(function, args or (random(2, 3, 4),), *PASSES, **options).check()


@pytest.mark.parametrize(
    ("function", "left"),
    [
        (lambda x: x.permute(2, 0, 1).permute(1, 2, 0).sin(), []),
        (lambda x: x.permute(2, 0, 1).permute(2, 0, 1).sin(), [_PERMUTE]),
        (lambda x: x.transpose(0, 1).transpose(1, 2).transpose(0, 2).sin(), [_PERMUTE]),
        (lambda x: x[0].t().t().sin(), ["aten.select_copy.int"]),
        (lambda x: x.unsqueeze(0).permute(1, 0, 2, 3).sin(), [_VIEW]),
        (lambda x: x.view(6, 4).view(2, 12).view(24).sin(), [_VIEW]),
        (lambda x: x.unsqueeze(1).squeeze(1).sin(), []),
        (lambda x: x.view(6, 4).view(2, 3, 4).sin(), []),
        (lambda x: x[:, :1].expand(2, 5, 4).expand(3, 2, 5, 4).sin(), ["aten.expand_copy.default"]),
        (lambda x: x.repeat(1, 1, 1).sin(), []),
        (lambda x: torch.cat([x]).sin(), []),
        (lambda x: torch.cat([x, torch.zeros(2, 0, 4)], 1).sin(), []),
        (lambda x: torch.cat([x, torch.zeros(2, 0, 4), x], 1).sin(), ["aten.cat.default"]),
    ],
)
def test_what_is_left_in_front_of_the_sine(function: Callable[..., Any], left: list[str]) -> None:
    case = _case(function)
    layout = [name for name in case.calls if name not in ("aten.sin.default", "aten.full.default")]
    layout = [name for name in layout if name != "aten.slice_copy.Tensor"]
    assert layout == left


def test_a_permute_of_two_long_dimensions_stays() -> None:
    assert _case(lambda x: x.permute(0, 2, 1).sin()).calls == [_PERMUTE, "aten.sin.default"]


def test_what_is_returned_is_a_tensor_of_its_own() -> None:
    case = _case(lambda x: (x.permute(2, 0, 1).permute(1, 2, 0), torch.cat([x]), x.repeat(1, 1, 1)))
    assert len(case.calls) == 3


def test_a_dtype_that_an_empty_operand_decides_stays() -> None:
    case = _case(lambda x: torch.cat([x, torch.zeros(0, 3, 4, dtype=torch.float64)]) * 2)
    assert "aten.cat.default" in case.calls


class Swap(nn.Module):
    """Two buffers that take each other's value, through layout changes that undo each other."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", random(2, 3))
        self.register_buffer("b", random(2, 3) * 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        old = self.a.t().t().clone()
        self.a.copy_(self.b.view(6).view(2, 3))
        self.b.copy_(old.t().t() + x)
        return self.a.t().t()


def test_buffers_keep_the_values_from_before_an_update() -> None:
    PassCase(Swap(), (random(2, 3),), *PASSES).check((random(2, 3),), (random(2, 3) + 1,))


def test_extents_that_vary() -> None:
    batch = torch.export.Dim("batch", min=1, max=8)
    case = _case(
        lambda x: x.view(x.shape[0] * 3, 4).view(x.shape[0], 12).unsqueeze(0).permute(1, 0, 2).sin(),
        dynamic_shapes=({0: batch},),
    ).check((random(8, 3, 4),))
    assert case.calls.count(_VIEW) == 1
    assert _PERMUTE not in case.calls


def test_channels_last_inputs_keep_their_meaning() -> None:
    x = random(2, 3, 4, 5).to(memory_format=torch.channels_last)
    PassCase(
        lambda x: (x * 2).permute(0, 2, 3, 1).permute(0, 3, 1, 2).reshape(2, -1).reshape(6, -1).sin(),
        (x,),
        *PASSES,
    ).check()


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_composed_permutations_reorder_as_one_after_the_other(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 6))
    first, second = (tuple(data.draw(st.permutations(range(rank)))) for _ in range(2))
    x = torch.empty(*range(2, rank + 2))
    assert x.permute(first).permute(second).shape == x.permute(compose(first, second)).shape


@settings(max_examples=8, deadline=None)
@given(
    steps=st.lists(
        st.sampled_from(["permute", "swap", "flatten", "split", "unsqueeze", "squeeze", "expand", "sin"]),
        min_size=2,
        max_size=8,
    ),
    seed=st.integers(0, 1000),
)
def test_random_chains_compute_what_eager_mode_does(steps: list[str], seed: int) -> None:
    def chain(x: torch.Tensor) -> torch.Tensor:
        generator = random_module.Random(seed)
        for step in steps:
            if step == "permute":
                x = x.permute(generator.sample(range(x.dim()), x.dim()))
            elif step == "swap":
                x = x.transpose(0, -1)
            elif step == "flatten":
                x = x.reshape(-1)
            elif step == "split":
                x = x.reshape(2, -1, *x.shape[1:]) if x.shape[0] % 2 == 0 else x.reshape(1, *x.shape)
            elif step == "unsqueeze":
                x = x.unsqueeze(x.dim() // 2)
            elif step == "squeeze":
                x = x.squeeze()
            elif step == "expand":
                x = x.expand(1, *x.shape)
            else:
                x = x.sin()
        return x + 1

    case = PassCase(chain, (random(2, 1, 3, 4),), *PASSES).check()
    assert len(case.calls) <= len(case.calls_before)
