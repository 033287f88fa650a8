"""`fold_batch_norms`: the weights of a layer take over the scale and the shift of the norm behind it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from pteron.exir.passes import FoldConstants, fold_batch_norms
from tests.exir.passes.pass_case import PassCase
from tests.exir.small_models import random

_NORM = "aten._native_batch_norm_legit_no_training.default"


def _trained(norm: nn.Module) -> nn.Module:
    """Statistics and weights that are not those of a new layer."""
    generator = torch.Generator().manual_seed(1)
    for name, value in [*norm.named_parameters(), *norm.named_buffers()]:
        if value.is_floating_point():
            low, high = (0.5, 2.0) if "var" in name else (-1.0, 1.0)
            value.data = torch.empty_like(value).uniform_(low, high, generator=generator)
    return norm


def _fold(*layers: nn.Module, x: torch.Tensor, **options: Any) -> PassCase:
    model = nn.Sequential(*layers)
    return PassCase(model, (x,), FoldConstants(), fold_batch_norms, **options)


_LAYERS: dict[str, tuple[nn.Module, nn.Module, torch.Tensor]] = {
    "1d": (nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4), random(2, 3, 9)),
    "2d": (nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.BatchNorm2d(4), random(2, 3, 9, 9)),
    "2d without bias": (nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), random(2, 3, 9, 9)),
    "3d": (nn.Conv3d(2, 4, 3), nn.BatchNorm3d(4), random(1, 2, 5, 5, 5)),
    "grouped": (nn.Conv2d(4, 6, 3, groups=2), nn.BatchNorm2d(6), random(1, 4, 6, 6)),
    "depthwise": (nn.Conv2d(4, 4, 3, groups=4), nn.BatchNorm2d(4), random(1, 4, 6, 6)),
    "dilated": (nn.Conv2d(2, 3, 3, dilation=2), nn.BatchNorm2d(3), random(1, 2, 9, 9)),
    "transposed": (nn.ConvTranspose2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), random(1, 3, 5, 5)),
    "transposed grouped": (
        nn.ConvTranspose2d(4, 6, 3, groups=2, bias=False),
        nn.BatchNorm2d(6),
        random(1, 4, 5, 5),
    ),
    "norm without weights": (nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, affine=False), random(1, 3, 6, 6)),
    "linear": (nn.Linear(5, 4), nn.BatchNorm1d(4), random(3, 5)),
    "linear without bias": (nn.Linear(5, 4, bias=False), nn.BatchNorm1d(4), random(3, 5)),
    # Larger than what is computed at a time.
    "wide": (nn.Conv2d(64, 70, 3), nn.BatchNorm2d(70), random(1, 64, 4, 4)),
    "wide transposed": (
        nn.ConvTranspose2d(64, 96, 3, groups=2, bias=False),
        nn.BatchNorm2d(96),
        random(1, 64, 3, 3),
    ),
    "wide linear": (nn.Linear(200, 210), nn.BatchNorm1d(210), random(3, 200)),
    "double": (nn.Conv2d(3, 4, 3).double(), nn.BatchNorm2d(4).double(), random(1, 3, 6, 6).double()),
}


@pytest.mark.parametrize("name", _LAYERS)
def test_the_norm_goes_and_the_result_stays(name: str) -> None:
    layer, norm, x = _LAYERS[name]
    case = _fold(layer, _trained(norm), nn.ReLU(), x=x).check()
    assert _NORM in case.calls_before
    assert len(case.calls) == 2
    assert case.calls[-1] == "aten.relu.default"


def test_a_batch_that_varies() -> None:
    batch = torch.export.Dim("batch", min=1, max=8)
    case = _fold(
        nn.Conv2d(3, 4, 3),
        _trained(nn.BatchNorm2d(4)),
        x=random(2, 3, 6, 6),
        dynamic_shapes=({0: batch},),
    )
    assert case.check((random(5, 3, 6, 6),)).calls == ["aten.convolution.default"]


def test_the_instruction_keeps_both_places_in_the_model() -> None:
    case = _fold(nn.Conv2d(3, 4, 3), _trained(nn.BatchNorm2d(4)), x=random(1, 3, 6, 6))
    manager = case.after.to_executorch()
    (handles,) = manager.debug_handle_map["forward"].values()
    assert isinstance(handles, list)
    assert len(handles) == 2


class Reused(nn.Module):
    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what
        self.layer = nn.Conv2d(3, 3, 1)
        self.norm = _trained(nn.BatchNorm2d(3))

    def forward(self, x: torch.Tensor) -> Any:
        y = self.layer(x)
        if self.what == "result":
            return self.norm(y) + y
        if self.what == "returned":
            return self.norm(y), y
        return self.norm(y) + self.layer(x + 1)


@pytest.mark.parametrize("what", ["result", "returned", "weight"])
def test_not_where_somebody_else_reads_it(what: str) -> None:
    case = PassCase(Reused(what), (random(1, 3, 4, 4),), FoldConstants(), fold_batch_norms).check()
    assert _NORM in case.calls


def test_not_in_half_precision() -> None:
    case = _fold(nn.Conv2d(3, 4, 3).half(), nn.BatchNorm2d(4).half(), x=random(1, 3, 6, 6).half())
    assert _NORM in case.calls


def test_not_where_the_statistics_are_updated() -> None:
    class Updates(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Conv2d(3, 3, 1)
            self.norm = _trained(nn.BatchNorm2d(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.norm(self.layer(x))
            self.norm.running_mean.add_(1.0)
            return y

    case = PassCase(Updates(), (random(1, 3, 4, 4),), FoldConstants(), fold_batch_norms)
    assert _NORM in case.check((random(1, 3, 4, 4),)).calls
