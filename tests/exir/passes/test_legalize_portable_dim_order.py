"""`LegalizePortableDimOrderPass`: channels-last programs run on ExecuTorch's portable kernels."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.export import export
from torch.nn import functional

from pteron.exir import ExecutorchBackendConfig, to_edge
from pteron.exir.edge.tensor_spec import dim_order_of_value
from pteron.exir.passes import LegalizePortableDimOrderPass
from tests.exir.small_models import PORTABLE, edge_of, mlp, random, targets


class ChannelsLast(nn.Module):
    """One of most kinds of operator, each over a channels-last tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(4, 4, 3, padding=1).to(memory_format=torch.channels_last)
        self.norm = nn.BatchNorm2d(4)
        self.register_buffer("state", random(2, 4, 8, 8).to(memory_format=torch.channels_last))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.to(memory_format=torch.channels_last)
        self.state.copy_(y * 2)
        f = functional
        pooled = (
            f.avg_pool2d(y, 2),
            f.adaptive_avg_pool2d(y, (2, 2)),
            f.max_pool2d(y, 2),
            y.mean((2, 3)),
            y.sum(1),
            y.amax((2, 3)),
            y.var((2, 3)),
        )
        mixed = (y + 1.5, y * y, y * x, y * torch.arange(4.0).view(4, 1, 1), torch.where(x > 0, y, 0.0))
        shaped = (
            y[:1].expand(2, 4, 8, 8) + 1,
            torch.cat([y, y], 1),
            torch.cat([y, x], 1),
            y.reshape(2, -1),
            y.permute(0, 2, 3, 1) + 1,
            y[:, 1:3] + 1,
            y[0] + 1,
            y.unsqueeze(0) * 2,
            f.pad(y, (1, 1, 1, 1)),
            y.flip(0),
            torch.stack([y, y]),
            y.split(2, 1)[1] + 1,
            y[torch.tensor([1, 0])],
        )
        layers = (
            self.convolution(y),
            self.norm(y),
            f.layer_norm(y, (8,)),
            f.group_norm(y, 2),
            f.interpolate(y, scale_factor=2),
            y.softmax(1),
            y.cumsum(1),
            y @ x,
        )
        pointwise = tuple(
            each(y)
            for each in (
                torch.abs,
                torch.exp,
                torch.neg,
                torch.sigmoid,
                torch.sin,
                torch.tanh,
                f.elu,
                f.gelu,
                f.hardtanh,
                f.leaky_relu,
                f.relu,
                lambda y: y.clamp(0, 1),
                lambda y: (y * y).sqrt(),
                lambda y: (y * y).log(),
                lambda y: (y * y).rsqrt(),
            )
        )
        return (*pooled, *mixed, *shaped, *layers, *pointwise)


@pytest.mark.peer
@pytest.mark.parametrize("optimize", [True, False])
def test_executorch_computes_what_eager_mode_does(optimize: bool) -> None:
    runtime = pytest.importorskip("executorch.runtime", reason="needs the executorch wheel")
    model, x = ChannelsLast().eval(), random(2, 4, 8, 8)
    config = ExecutorchBackendConfig(kernels="executorch-portable", optimize=optimize)
    buffer = to_edge(export(model, (x,))).to_executorch(config).buffer
    outputs: list[Any] = runtime.Runtime.get().load_program(buffer).load_method("forward").execute([x])
    with torch.no_grad():
        expected = model(x)
    for position, (got, want) in enumerate(zip(outputs, expected, strict=True)):
        torch.testing.assert_close(
            got, want, rtol=1e-5, atol=1e-5, msg=lambda text, p=position: f"{p}: {text}"
        )


def test_results_keep_their_memory_order_and_other_programs_stay() -> None:
    x = random(1, 4, 8, 8).to(memory_format=torch.channels_last)
    edge = edge_of(lambda x: x + 1, x)
    (result,) = (
        edge.transform([LegalizePortableDimOrderPass()]).exported_program().graph.output_node().args[0]
    )
    assert dim_order_of_value(result.meta["val"]) == (0, 2, 3, 1)
    plain = to_edge(export(mlp(), (random(2, 8),)))
    same = plain.transform([LegalizePortableDimOrderPass()]).exported_program()
    assert targets(same) == targets(plain.exported_program())


def test_it_runs_for_that_target_alone() -> None:
    edge = edge_of(lambda x: x.to(memory_format=torch.channels_last).mean((2, 3)), random(1, 4, 8, 8))
    assert _copies(edge.to_executorch()) + 1 == _copies(edge.to_executorch(PORTABLE))


def _copies(manager: Any) -> int:
    plan = manager.executorch_program.execution_plan[0]
    names = [plan.operators[each.instr_args.op_index].name for each in plan.chains[0].instructions]
    return names.count("dim_order_ops::_to_dim_order_copy") + names.count("dim_order_ops::_clone_dim_order")
