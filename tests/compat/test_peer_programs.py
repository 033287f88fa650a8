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


def _moved_methods(to_edge_transform_and_lower, partitioner):
    """A method with an addition on a device, and one without."""
    x, y = torch.ones(2, 2), torch.zeros(2, 2)

    class Sum(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return (x + y).sin()

    class Plain(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 3

    programs = {"moved": torch.export.export(Sum(), (x, y)), "plain": torch.export.export(Plain(), (x,))}
    return to_edge_transform_and_lower(programs, partitioner={"moved": [partitioner]}).to_executorch()


def test_a_peer_program_with_devices_is_read_listed_and_refused_by_method() -> None:
    from executorch.exir.backend.test.device_util import DeviceAwarePartitioner

    from pteron.compat.exir.pte_file import deserialize_pte_binary

    manager = _moved_methods(exir.to_edge_transform_and_lower, DeviceAwarePartitioner("cuda:1"))
    program = pteron.load(bytes(manager.buffer))
    listing = program.listing()
    assert listing.count(" bytes on cuda:1\n") == 1
    assert listing.count(", arena 1 at ") == listing.count(" on cuda:1\n") - 1 == 3
    x = np.ones((2, 2), np.float32)
    assert np.array_equal(program.run("plain", x), 3 * x)
    with pytest.raises(pteron.MissingBackendError, match="memory on device cuda:1"):
        program.load_method("moved")
    theirs = manager.executorch_program.execution_plan
    read = deserialize_pte_binary(bytes(manager.buffer)).program
    for plan, expected in zip(read.execution_plan, theirs, strict=True):
        assert repr(plan.non_const_buffer_device) == repr(expected.non_const_buffer_device)
    # Written again, it is the same program.
    assert pteron._native.listing(pteron._native.serialize_program(read)) == listing


def test_the_peer_s_runtime_takes_our_program_with_devices() -> None:
    from executorch.extension.pybindings.portable_lib import _load_program_from_buffer

    from pteron.exir import to_edge_transform_and_lower
    from tests.exir.device_models import AddsOnDevices

    manager = _moved_methods(to_edge_transform_and_lower, AddsOnDevices("cuda:0"))
    program = _load_program_from_buffer(manager.buffer)
    (given,) = program.load_method("plain").call([torch.ones(2, 2)])
    assert torch.equal(given, torch.full((2, 2), 3.0))
    with pytest.raises(RuntimeError, match="on device"):
        program.load_method("moved")
