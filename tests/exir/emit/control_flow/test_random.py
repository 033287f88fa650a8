"""Random nests of control flow compute the same as plain Python, here and in ExecuTorch's runtime.

`PTERON_RANDOM_NESTS=200` sets the number of models; a failure names its seed.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

import pteron
from pteron.exir import to_edge
from tests.exir.random_nests import RandomNest
from tests.exir.small_models import PORTABLE

_COUNT = int(os.environ.get("PTERON_RANDOM_NESTS", "3"))
# Nearby numbers make nests of each kind.
_FIRST = 9


@pytest.mark.peer
@pytest.mark.parametrize("seed", range(_FIRST, _FIRST + _COUNT))
def test_a_random_nest(seed: int) -> None:
    runtime = pytest.importorskip("executorch.runtime", reason="needs the executorch wheel")
    model, plain = RandomNest(seed), RandomNest(seed, is_plain=True)
    torch._dynamo.reset()
    with torch.no_grad():
        buffer = to_edge(torch.export.export(model, model.inputs(0))).to_executorch(PORTABLE).buffer
    here = pteron.load(buffer).load_method("forward")
    there = runtime.Runtime.get().load_program(buffer).load_method("forward")
    for call in range(3):
        args = plain.inputs(call)
        with torch.no_grad():
            wanted = plain(*args)
        _check(tree_leaves(here(*args)), wanted, f"seed {seed}, here")
        _check(there.execute(list(args)), wanted, f"seed {seed}, in ExecuTorch")


def _check(got: list[Any], wanted: tuple[torch.Tensor, ...], where: str) -> None:
    for actual, want in zip(got, wanted, strict=True):
        torch.testing.assert_close(
            torch.as_tensor(actual), want, rtol=1e-4, atol=1e-4, msg=lambda text: f"{where}: {text}"
        )
