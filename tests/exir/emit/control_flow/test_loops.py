"""Loops: the compiled program computes what eager mode does, here and in ExecuTorch's runtime."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

import pteron
from tests.exir.loop_models import CASES, LoopCase, buffer_of

Compiled = tuple[LoopCase, bytes]


@pytest.fixture(scope="module", params=list(CASES))
def compiled(request: pytest.FixtureRequest) -> Compiled:
    return CASES[request.param], buffer_of(request.param)


def _expected(case: LoopCase) -> list[tuple[Any, list[Any]]]:
    """(arguments, results) of one run after the other; state is kept between them."""
    model = case.model().eval()
    runs = []
    for args in (case.args, *case.more_args, case.args):
        with torch.no_grad():
            results = (case.reference or model)(*copy.deepcopy(args))
        runs.append((args, tree_leaves(results)))
    return runs


def _check(got: list[Any], wanted: list[Any]) -> None:
    for actual, want in zip(got, wanted, strict=True):
        if not isinstance(want, torch.Tensor):
            assert actual == want
            continue
        assert actual.dtype is want.dtype
        assert tuple(actual.shape) == tuple(want.shape)
        torch.testing.assert_close(actual, want, rtol=1e-5, atol=1e-5)


def test_runs_like_eager(compiled: Compiled) -> None:
    case, buffer = compiled
    method = pteron.load(buffer).load_method("forward")
    for args, wanted in _expected(case):
        got = tree_leaves(method(*args))
        _check([torch.as_tensor(leaf) if hasattr(leaf, "shape") else leaf for leaf in got], wanted)


@pytest.mark.peer
def test_runs_in_executorch(compiled: Compiled) -> None:
    runtime = pytest.importorskip("executorch.runtime", reason="needs the executorch wheel")
    case, buffer = compiled
    method = runtime.Runtime.get().load_program(buffer).load_method("forward")
    for args, wanted in _expected(case):
        _check(method.execute(list(args)), wanted)
