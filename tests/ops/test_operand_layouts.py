"""Elementwise operators on operands that broadcast in every way kernels tell apart, against eager PyTorch.

Rows, columns, single numbers, short periods, channels in both memory orders, lengths on both sides of the
blocks that kernels compute at a time. Results of basic arithmetic are the very same numbers.
"""

from __future__ import annotations

import pytest
import torch

from tests.ops.operator_case import OperatorCase
from tests.ops.runtime_call import run_in_runtime
from tests.ops.tolerance import check_close

SHAPES = [
    ((40, 100), (40, 1)),
    ((40, 1), (40, 100)),
    ((3, 5, 64), (3, 1, 1)),
    ((2, 3000), (2, 1)),
    ((7, 1), (1, 129)),
    ((300, 65), (300, 1)),
    ((4, 8, 9, 9), (8, 1, 1)),
    ((4, 8, 9, 9), (4, 1, 1, 1)),
    ((5000, 3), (3,)),
    ((5000, 3), (5000, 1)),
    ((33, 1025), (1025,)),
    ((2, 16389), (1,)),
    ((200, 200), ()),
    ((6, 1, 80), (6, 4, 1)),
]
OPERATORS = [("sub", "out"), ("div", "out"), ("maximum", "out"), ("lt", "Tensor_out"), ("atan2", "out")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("left", "right"), SHAPES, ids=str)
def test_broadcasts_give_what_eager_gives(
    left: tuple[int, ...], right: tuple[int, ...], dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(left, generator=generator).to(dtype)
    y = torch.randn(right, generator=generator).to(dtype)
    x.view(-1)[1] = torch.nan
    inputs = [x]
    if x.dim() == 4:
        inputs.append(x.contiguous(memory_format=torch.channels_last))
    for a in inputs:
        for operator, overload in OPERATORS:
            case = OperatorCase(operator, overload, (a, y))
            expected = case.expected()
            (got,) = run_in_runtime(case, case.room(expected))
            if operator == "atan2":
                check_close(got, expected[0], str(case), case.name)
            else:
                torch.testing.assert_close(got, expected[0], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dim", [0, 1, 2, 3])
@pytest.mark.parametrize("is_log", [False, True])
def test_softmax_along_every_dimension(dim: int, is_log: bool) -> None:
    x = torch.randn(3, 70, 5, 33, generator=torch.Generator().manual_seed(6)) * 5
    for a in (x, x.contiguous(memory_format=torch.channels_last)):
        case = OperatorCase("_log_softmax" if is_log else "_softmax", "out", (a, dim, False))
        expected = case.expected()
        (got,) = run_in_runtime(case, case.room(expected))
        check_close(got, expected[0], str(case), case.name)
