"""Calls whose arguments are all known are made once, at load, wherever their results are read.

Files of ExecuTorch's exporter: ours computes such calls itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import pteron

pytestmark = [pytest.mark.peer, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
pytest.importorskip("executorch.exir", reason="needs the executorch wheel")


def positions(x: Tensor) -> Tensor:
    return x[torch.arange(1, 4) + 1]


def beside(x: Tensor) -> Tensor:
    return torch.cat([x, torch.full((2, 3), 2.5) * 2, torch.arange(6.0).reshape(2, 3)])


def positions_and_others(x: Tensor) -> Tensor:
    at = torch.arange(1, 4) + 1
    return x[at] + at[:, None]


@pytest.mark.parametrize("model", [positions, beside, positions_and_others], ids=lambda f: f.__name__)
def test_results_of_known_calls_are_read_from_lists(model: Callable[[Tensor], Tensor]) -> None:
    from executorch.exir import to_edge

    class Wrapped(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return model(x)

    x = torch.randn(6, 3)
    buffer = to_edge(torch.export.export(Wrapped(), (x,))).to_executorch().buffer
    steps = []
    for rules in ([], ["fold_constants"]):
        program = pteron.load(buffer, runtime=pteron.Runtime(disabled_rules=rules))
        method = program.load_method()
        for _ in range(2):
            got = torch.from_numpy(method.execute([x.numpy()])[0])
            torch.testing.assert_close(got, model(x), rtol=0, atol=0)
        steps.append(program.plan_listing("forward").count("\n"))
    assert steps[0] < steps[1]
