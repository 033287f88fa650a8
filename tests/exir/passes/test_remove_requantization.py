"""`remove_requantization`: a dequantise and the quantise that undoes it go together, no other pair."""

from __future__ import annotations

import torch
import torch.ao.quantization.fx._decomposed

from pteron.exir.passes import OPTIMIZATIONS, remove_requantization
from tests.exir.passes.pass_case import PassCase
from tests.exir.small_models import random

_q = torch.ops.quantized_decomposed.quantize_per_tensor
_dq = torch.ops.quantized_decomposed.dequantize_per_tensor
INT8 = (0.05, 3, -128, 127, torch.int8)
NARROW = (0.05, 3, -127, 127, torch.int8)


def _calls(function: object, *passes: object) -> tuple[int, int]:
    case = PassCase(function, (random(8),), *(passes or (remove_requantization,)))  # type: ignore[arg-type]
    return len(case.calls_before), len(case.calls)


def test_a_pair_in_the_middle_goes() -> None:
    # `to_edge` runs the pass already, so there is nothing left for it before the others.
    before, after = _calls(lambda x: _dq(_q(_dq(_q(x, *INT8), *INT8), *INT8), *INT8))
    assert (before, after) == (2, 2)


def test_it_stays_where_it_changes_something() -> None:
    other = (0.07, 3, -128, 127, torch.int8)
    for between in (NARROW, other):
        before, after = _calls(lambda x, q=between: _dq(_q(_dq(_q(x, *INT8), *INT8), *q), *q))
        assert before == after == 4


def test_every_value_of_the_range_survives() -> None:
    values = torch.arange(-128, 128, dtype=torch.int8)
    for scale in (1e-30, 0.0123, 3.7, 1e30):
        there = _dq(values, scale, 3, -128, 127, torch.int8)
        assert torch.equal(_q(there, scale, 3, -128, 127, torch.int8), values)


def test_all_passes_leave_the_pattern_around_an_operator() -> None:
    """dq → op → q is what a quantising backend looks for."""

    def layer(x: torch.Tensor) -> torch.Tensor:
        weight = _dq(torch.arange(64, dtype=torch.int8).view(8, 8), 0.01, 0, -128, 127, torch.int8)
        x = _dq(_q(x, *INT8), *INT8)
        y = _dq(_q((x @ weight.t()).view(2, 4).view(8), *INT8), *INT8)
        return y.relu()

    case = PassCase(layer, (random(8),), *OPTIMIZATIONS)
    quantizing = [name.split(".")[1] for name in case.calls if name.startswith("quantized_decomposed")]
    assert sorted(quantizing) == sorted(
        name.split(".")[1] for name in case.calls_before if name.startswith("quantized_decomposed")
    )
