"""Partitions and lowered modules inside loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.export import export

import pteron
from pteron.backends.demo import AddMulPartitionerDemo, register_demo_backends
from pteron.exir import EdgeProgramManager, to_edge
from pteron.exir.edge.control_flow import graph_modules
from pteron.exir.edge.delegate_call import is_delegate_call


class LoopsOfParts(torch.nn.Module):
    """Parts of a loop of each kind go to a backend, others stay."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor([1.5, 0.5]), requires_grad=False)

    def forward(self, x: torch.Tensor, start: torch.Tensor) -> Any:
        rows = map_over(lambda row, scale: (row + scale).tanh() + row, x, self.scale)

        def step(carry: torch.Tensor, row: torch.Tensor) -> Any:
            new = (carry + row).sigmoid() + self.scale
            return new, new + row

        carry, sums = scan(step, start, rows)

        def body(i: torch.Tensor, y: torch.Tensor) -> Any:
            return i + 1, (y + self.scale).tanh()

        # The demo backend adds floats alone.
        zero = torch.zeros(())
        count, y = while_loop(lambda i, y: i < 3, body, (zero, carry))
        return count, y, sums


_INPUTS = (torch.tensor([[1.0, 2.0], [-3.0, 4.0], [0.5, -0.5]]), torch.tensor([0.25, -1.0]))


@pytest.fixture(scope="module")
def lowered() -> EdgeProgramManager:
    with torch.no_grad():
        torch._dynamo.reset()
        return to_edge(export(LoopsOfParts(), _INPUTS)).to_backend(AddMulPartitionerDemo())


def test_every_body_has_its_calls(lowered: EdgeProgramManager) -> None:
    modules = list(graph_modules(lowered.exported_program().graph_module))
    calls = [sum(is_delegate_call(node) for node in module.graph.nodes) for module in modules]
    # The calling graph, map, scan, the condition and the body of while_loop.
    assert len(calls) == 5
    assert calls[0] == calls[3] == 0
    assert calls[1] == calls[2] == 2
    assert calls[4] >= 1


@pytest.mark.parametrize("language", ["rust", "python"])
def test_delegates_run_once_per_iteration(lowered: EdgeProgramManager, language: str) -> None:
    runtime = pteron.Runtime()
    register_demo_backends(runtime, language=language)
    program = pteron.load(lowered.to_executorch().buffer, runtime=runtime)
    method = program.load_method("forward")
    with torch.no_grad():
        wanted = LoopsOfParts()(*_INPUTS)
    for _ in range(2):
        got = method(*(value.numpy() for value in _INPUTS))
        assert len(got) == len(wanted)
        for actual, want in zip(got, wanted, strict=True):
            np.testing.assert_allclose(actual, want.numpy(), rtol=1e-5)
