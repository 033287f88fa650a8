"""What the run half makes of a program at load: folded, packed, fused. Reviewed as text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

import pteron
from pteron.exir import ExecutorchBackendConfig, to_edge
from tests.models.exporters import EXPORTERS
from tests.support.goldens import compare

_GOLDEN = Path(__file__).parent / "golden_plans"


def mlp() -> tuple[nn.Module, Tensor]:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
    return model.eval(), torch.randn(2, 8)


def cnn() -> tuple[nn.Module, Tensor]:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 4 * 4, 5),
    )
    return model.eval(), torch.randn(1, 3, 8, 8)


class Scaled(nn.Module):
    """Scales and shifts by constants behind everything that has a weight, and uneven margins."""

    scale: Tensor
    shift: Tensor
    offset: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, stride=2)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2, groups=2, bias=False)
        self.head = nn.Linear(4 * 8 * 8, 5, bias=False)
        self.register_buffer("scale", torch.rand(8, 1, 1) + 0.5)
        self.register_buffer("shift", torch.randn(8, 1, 1))
        self.register_buffer("offset", torch.randn(5))

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.pad(x, (0, 1, 0, 1))
        x = torch.relu(self.down(x) * self.scale + self.shift)
        x = torch.relu((1 - self.up(x)) / self.scale[:4])
        return self.head(x.flatten(1)) * 0.5 + self.offset


class Tokens(nn.Module):
    """Rows of pixels between convolutions: a norm, a gate, a residual, and a head over maps of two sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 2, stride=2)
        self.norm = nn.LayerNorm(8)
        self.gate = nn.Linear(8, 16)
        self.back = nn.Linear(16, 8)
        self.mix = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.down = nn.Conv2d(8, 12, 2, stride=2)
        self.first = nn.Linear(8, 64)
        self.second = nn.Linear(12, 64)
        self.head = nn.Conv2d(128, 64, 1)
        self.classes = nn.Conv2d(64, 5, 1)

    def _as_map(self, layer: nn.Linear, image: Tensor, size: torch.Size) -> Tensor:
        rows = layer(image.flatten(2).transpose(1, 2))
        maps = rows.transpose(1, 2).reshape(image.shape[0], -1, *image.shape[2:])
        return nn.functional.interpolate(maps, size=size, mode="bilinear", align_corners=False)

    def forward(self, x: Tensor) -> Tensor:
        image = self.patches(x)
        rows = self.norm(image.permute(0, 2, 3, 1))
        rows = self.back(nn.functional.silu(self.gate(rows)))
        image = image + rows.permute(0, 3, 1, 2)
        rows = self.mix(image).flatten(2).transpose(1, 2)
        rows = nn.functional.gelu(rows)
        image = rows.transpose(1, 2).reshape(image.shape)
        small = self.down(image)
        size = image.shape[2:]
        maps = [self._as_map(self.second, small, size), self._as_map(self.first, image, size)]
        return self.classes(torch.relu(self.head(torch.cat(maps, dim=1))))


def tokens() -> tuple[nn.Module, Tensor]:
    return Tokens().eval(), torch.randn(1, 3, 32, 32)


def scaled() -> tuple[nn.Module, Tensor]:
    return Scaled().eval(), torch.randn(1, 3, 8, 8)


def loaded(buffer: bytes) -> pteron.Program:
    """In a runtime that is the same on every machine, with the method's weights packed."""
    program = pteron.load(buffer, runtime=pteron.Runtime(isa="portable", num_threads=1))
    program.load_method("forward")
    return program


@pytest.mark.parametrize(("exporter", "export"), EXPORTERS)
@pytest.mark.parametrize("build", [mlp, cnn, scaled, tokens])
def test_the_plan_is_the_reviewed_one(
    build: Callable[[], tuple[nn.Module, Tensor]], exporter: str, export: Callable[[ExportedProgram], bytes]
) -> None:
    torch.manual_seed(0)
    model, x = build()
    program = loaded(export(torch.export.export(model, (x,))))
    plan = program.plan_listing("forward")
    compare(plan, _GOLDEN / f"{build.__name__}_{exporter}.txt")
    with torch.no_grad():
        torch.testing.assert_close(program.run("forward", x), model(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("exporter", "export"), EXPORTERS)
@pytest.mark.parametrize(("build", "operator"), [(mlp, "aten::addmm.out"), (cnn, "aten::convolution.out")])
def test_activations_are_fused_and_weights_folded_and_packed(
    build: Callable[[], tuple[nn.Module, Tensor]],
    operator: str,
    exporter: str,
    export: Callable[[ExportedProgram], bytes],
) -> None:
    model, x = build()
    program = loaded(export(torch.export.export(model, (x,))))
    plan = program.plan_listing("forward")
    assert program.listing().count("aten::relu.out") == 2
    assert plan.count(f"{operator} + clamp(0, inf)") == 2
    assert "aten::relu.out" not in plan
    # The peer's exporter leaves the permutes of the weights to the run half.
    assert ("aten::permute_copy.out" in program.operators("forward")) == (exporter == "executorch")
    assert "permute_copy" not in plan
    assert program.pack_stats[0] == 3


def test_a_linear_layer_is_folded_and_packed() -> None:
    layer = nn.Linear(8, 16).eval()
    exported = to_edge(torch.export.export(layer, (torch.randn(2, 8),)))
    buffer = exported.to_executorch(ExecutorchBackendConfig(optimize=False)).buffer
    program = pteron.load(buffer)
    assert "aten::permute_copy.out" in program.listing()
    assert program.pack_stats == (0, 0)
    method = program.load_method("forward")
    assert "permute_copy" not in program.plan_listing("forward")
    count, size = program.pack_stats
    assert count == 1
    assert size >= layer.weight.numel() * layer.weight.element_size()
    again = program.load_method("forward")
    assert program.pack_stats == (count, size), "methods share what is packed"
    x = torch.randn(2, 8)
    with torch.no_grad():
        for each in (method, again):
            torch.testing.assert_close(each(x), layer(x))
