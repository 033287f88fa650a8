"""Indices that are data of tensors: a kernel gives what eager PyTorch gives, or both refuse."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import pteron
from tests.ops.operator_case import OperatorCase
from tests.ops.runtime_call import run_in_runtime

X = torch.arange(24.0).reshape(4, 6)
FLAT = torch.arange(4.0)
HOSTILE = (
    -(2**63),
    -(2**62),
    -(2**31) - 1,
    -25,
    -7,
    -5,
    -4,
    -1,
    0,
    3,
    4,
    6,
    24,
    2**31,
    2**32,
    2**61,
    2**63 - 1,
)

# Each takes indices of which one is hostile, and calls an operator that uses them on an extent of 4.
CALLS: dict[str, Callable[[Tensor], OperatorCase]] = {
    "index_select": lambda i: OperatorCase("index_select", "out", (X, 0, i)),
    "gather": lambda i: OperatorCase("gather", "out", (X, 0, i[None, :])),
    "index": lambda i: OperatorCase("index", "Tensor_out", (X, [i])),
    "index of two": lambda i: OperatorCase("index", "Tensor_out", (X, [i, i])),
    "index behind a gap": lambda i: OperatorCase("index", "Tensor_out", (X.T.contiguous(), [None, i])),
    "index_put": lambda i: OperatorCase("index_put", "out", (X, [i], X[:3])),
    "index_put that adds": lambda i: OperatorCase("index_put", "out", (X, [i, i], FLAT[:3], True)),
    "scatter": lambda i: OperatorCase("scatter", "src_out", (X, 0, i[None, :], X)),
    "scatter of a number": lambda i: OperatorCase("scatter", "value_out", (X, 0, i[None, :], 2.0)),
    "scatter_add": lambda i: OperatorCase("scatter_add", "out", (X, 0, i[None, :], X)),
    "scatter_reduce": lambda i: OperatorCase("scatter_reduce", "two_out", (X, 0, i[None, :], X, "amax")),
    "index_reduce": lambda i: OperatorCase("index_reduce", "out", (X, 0, i, X[:3], "prod")),
    "embedding": lambda i: OperatorCase("embedding", "out", (X, i)),
    "embedding_dense_backward": lambda i: OperatorCase(
        "embedding_dense_backward", "out", (X[:3], i, 4, -1, False)
    ),
    "put": lambda i: OperatorCase("put", "out", (X, i, FLAT[:3], False)),
    "max_pool2d_with_indices_backward": lambda i: OperatorCase(
        "max_pool2d_with_indices_backward",
        "grad_input",
        (
            X[None, :1, None, :3],
            X[None, :1, None],
            [1, 2],
            [1, 2],
            [0, 0],
            [1, 1],
            False,
            i[None, None, None],
        ),
    ),
}

# PyTorch uses these as they are: what it does with indices out of range is no result.
UNCHECKED_BY_PYTORCH = ("embedding_dense_backward", "max_pool2d_with_indices_backward")


def _outcome(
    run: Callable[[], list[Tensor]], errors: tuple[type[Exception], ...]
) -> list[Tensor] | Exception:
    try:
        return run()
    except errors as error:
        return error


@pytest.mark.parametrize("name", UNCHECKED_BY_PYTORCH)
def test_hostile_indices_are_refused(name: str) -> None:
    room = CALLS[name](torch.tensor([0, 1, 2])).expected()
    # -1 stands for no place at all in both: padding.
    for value in (-(2**63), -2, 6, 2**32, 2**63 - 1):
        for place in range(3):
            index = torch.tensor([0, 1, 2])
            index[place] = value
            with pytest.raises(pteron.KernelError, match=r"index out of range.*expected between 0 and"):
                run_in_runtime(CALLS[name](index), room)


@pytest.mark.parametrize("name", sorted(set(CALLS) - set(UNCHECKED_BY_PYTORCH)))
def test_hostile_indices_are_what_they_are_in_pytorch(name: str) -> None:
    room = CALLS[name](torch.tensor([0, 1, 2])).expected()
    refused = 0
    for value in HOSTILE:
        for place in range(3):
            index = torch.tensor([0, 1, 2])
            index[place] = value
            case = CALLS[name](index)
            expected = _outcome(case.expected, (RuntimeError, IndexError))
            got = _outcome(lambda case=case: run_in_runtime(case, room), (pteron.KernelError,))
            if isinstance(expected, Exception):
                assert isinstance(got, pteron.KernelError), f"{value}: PyTorch says {expected}"
                assert "expected" in str(got)
                refused += 1
            else:
                assert not isinstance(got, Exception), f"{value}: {got}"
                for ours, theirs in zip(got, expected, strict=True):
                    torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
    assert refused >= 20
