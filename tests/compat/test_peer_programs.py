"""Programs of ExecuTorch's own exporter run here, equal to its own runtime and to eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pteron
from tests.models.model_zoo import calibrate_batch_norm

pytestmark = [pytest.mark.peer, pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")]
exir = pytest.importorskip("executorch.exir")


class SmallCnn(nn.Module):
    """Convolutions with batch norm, a residual, pooling and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.pool = nn.MaxPool2d(2)
        self.branch = nn.Sequential(
            nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.ReLU6(), nn.Conv2d(16, 16, 1)
        )
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.stem(x))
        x = x + self.branch(x)
        return torch.softmax(self.head(x.mean(dim=(2, 3))), dim=-1)


def mlp() -> tuple[nn.Module, Tensor]:
    model = nn.Sequential(
        nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 4)
    )
    return model.eval(), torch.randn(6, 16)


def cnn() -> tuple[nn.Module, Tensor]:
    model = SmallCnn()
    calibrate_batch_norm(model, torch.randn(4, 3, 32, 32))
    return model, torch.randn(2, 3, 32, 32)


@pytest.mark.parametrize("batch", ["static", "dynamic"])
@pytest.mark.parametrize("build", [mlp, cnn])
def test_peer_program_runs_here(build: Callable[[], tuple[nn.Module, Tensor]], batch: str) -> None:
    from executorch.runtime import Runtime

    torch.manual_seed(0)
    model, x = build()
    shapes = ({0: torch.export.Dim("batch", min=1, max=8)},) if batch == "dynamic" else None
    buffer = exir.to_edge(torch.export.export(model, (x,), dynamic_shapes=shapes)).to_executorch().buffer

    method = pteron.load(buffer).load_method("forward")
    peer = Runtime.get().load_program(buffer).load_method("forward")
    for rows in (x.shape[0], 1) if batch == "dynamic" else (x.shape[0],):
        ours = method(x[:rows].numpy())
        with torch.no_grad():
            eager = model(x[:rows]).numpy()
        theirs = peer.execute([x[:rows].contiguous()])[0].numpy()
        scale = np.abs(eager).max()
        assert np.abs(ours - eager).max() <= 1e-5 * scale
        assert np.abs(ours - theirs).max() <= 1e-5 * scale


def test_peer_program_is_folded_and_listed() -> None:
    model, x = mlp()
    program = pteron.load(exir.to_edge(torch.export.export(model, (x,))).to_executorch().buffer)
    assert program.methods == ("forward",)
    assert "aten::addmm.out" in program.operators("forward")
    assert program.listing().count("aten::permute_copy.out") == 3
    program.load_method("forward")
    plan = program.plan_listing("forward")
    assert "permute_copy" not in plan
    assert plan.count("aten::addmm.out") == 3
    count, size = program.pack_stats
    weights = [layer.weight for layer in model.modules() if isinstance(layer, nn.Linear)]
    assert count == len(weights) == 3
    assert size >= sum(weight.numel() * weight.element_size() for weight in weights)


def test_peer_control_flow_runs_here() -> None:
    class Branches(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cond(x.sum() > 0, lambda t: t * 2, lambda t: t - 1, (x,))

    x = torch.ones(4)
    program = pteron.load(exir.to_edge(torch.export.export(Branches(), (x,))).to_executorch().buffer)
    for value in (1.0, -1.0):
        given = torch.full((4,), value)
        assert torch.equal(program.run("forward", given), Branches()(given))
