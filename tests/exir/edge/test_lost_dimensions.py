"""Dynamic dimensions stay dynamic from capture to the file."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.export import ExportedProgram

import pteron
from pteron.errors import ExportError
from pteron.exir import to_edge


class Enlarge(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.interpolate(x, size=(7, 9), mode="bilinear")


@pytest.fixture
def captured() -> ExportedProgram:
    batch = torch.export.Dim("batch", min=1, max=8)
    return torch.export.export(Enlarge(), (torch.ones(2, 3, 4, 4),), dynamic_shapes=({0: batch},))


def test_an_operator_that_is_composite_keeps_the_range(captured: ExportedProgram) -> None:
    program = pteron.load(to_edge(captured).to_executorch().buffer)
    for batch in (1, 2, 8):
        x = torch.randn(batch, 3, 4, 4, generator=torch.Generator().manual_seed(batch))
        np.testing.assert_allclose(program.run("forward", x.numpy()), Enlarge()(x).numpy(), atol=1e-6)


def test_a_pass_that_asks_for_the_number_is_an_error(captured: ExportedProgram) -> None:
    def ask(module: torch.fx.GraphModule) -> None:
        for node in module.graph.nodes:
            if node.op == "placeholder":
                int(node.meta["val"].shape[0])

    with pytest.raises(ExportError, match=r"dimension 0 of 'x' .* range 1 to 8, .* fixed it to 2"):
        to_edge(captured).transform([ask]).to_executorch()
