"""What the run half makes of a quantised network at load: integers from the first layer to the last."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

import pteron
from pteron.exir import to_edge
from pteron.quant import quantize
from tests.support.goldens import compare

_GOLDEN = Path(__file__).parent / "golden_plans"


class Network(nn.Module):
    """What image networks are made of: pooling, a residual sum, a join, a change of order, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.inner = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.outer = nn.Conv2d(8, 8, 1)
        self.side = nn.Conv2d(8, 8, 1)
        self.head = nn.Linear(16 * 4 * 4, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.max_pool2d(torch.relu(self.stem(x)), 2)
        x = torch.relu(x + self.outer(nn.functional.relu6(self.inner(x))))
        x = torch.cat([x, self.side(x)], 1)
        return self.head(x.permute(0, 2, 3, 1).flatten(1))


def test_the_plan_is_the_reviewed_one() -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 3, 8, 8)
    model = quantize(Network().eval(), (x,), calibration=[(x,)], scheme="int8")
    buffer = to_edge(torch.export.export(model, (x,))).to_executorch().buffer
    program = pteron.load(buffer, runtime=pteron.Runtime(isa="portable", num_threads=1))
    plan = program.plan_listing("forward")
    compare(plan, _GOLDEN / "quantised_network_pteron.txt")
    assert plan.count("dequantize_per_tensor") == 0, plan
