"""Convolutions with constant weights against eager PyTorch: parameters, memory orders, dynamic extents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

import pteron
from pteron.exir import to_edge


@dataclass
class Layer:
    """A convolution and the extents of its input after the channels."""

    kind: str
    channels: tuple[int, int]
    kernel: Any
    extents: tuple[int, ...]
    options: dict[str, Any]
    images: int = 2

    def module(self) -> torch.nn.Module:
        make = getattr(torch.nn, self.kind)
        module: torch.nn.Module = make(*self.channels, self.kernel, **self.options)
        return module

    def input(self, *, is_last: bool) -> torch.Tensor:
        x = torch.randn(self.images, self.channels[0], *self.extents)
        formats = {2: torch.channels_last, 3: torch.channels_last_3d}
        rank = len(self.extents)
        return x.contiguous(memory_format=formats[rank]) if is_last and rank in formats else x


def _layer(
    kind: str, channels: tuple[int, int], kernel: Any, *extents: int, images: int = 2, **options: Any
) -> Layer:
    return Layer(kind, channels, kernel, extents, options, images)


LAYERS = [
    _layer("Conv1d", (4, 9), 3, 17, padding=1),
    _layer("Conv1d", (6, 6), 5, 17, stride=2, padding=2, dilation=2, groups=6),
    _layer("Conv1d", (32, 40), 1, 50, bias=False),
    _layer("Conv2d", (3, 24), 7, 33, 31, stride=2, padding=3),
    _layer("Conv2d", (3, 16), 7, 40, 41, stride=4),
    _layer("Conv2d", (3, 48), 16, 32, 32, stride=16),
    _layer("Conv2d", (40, 70), 3, 9, 11, padding=1),
    _layer("Conv2d", (40, 70), 1, 9, 11),
    _layer("Conv2d", (400, 24), 1, 7, 7, images=1),
    _layer("Conv2d", (40, 70), 1, 9, 11, stride=2, bias=False),
    _layer("Conv2d", (12, 20), (3, 1), 9, 11, padding=(2, 0), dilation=(2, 1), stride=(1, 3)),
    _layer("Conv2d", (12, 20), 3, 9, 11, padding="same", dilation=2),
    _layer("Conv2d", (64, 128), 3, 8, 9, groups=2, padding=1),
    _layer("Conv2d", (64, 64), 3, 8, 9, groups=16, padding=1),
    _layer("Conv2d", (48, 48), 3, 8, 9, groups=48, padding=1),
    _layer("Conv2d", (48, 48), 5, 8, 9, groups=48, padding=2, stride=2, bias=False),
    _layer("Conv2d", (21, 21), 7, 8, 9, groups=21, padding=3),
    _layer("Conv2d", (10, 30), 3, 8, 9, groups=10, padding=1),
    _layer("Conv2d", (10, 30), 3, 9, 9, groups=10, padding=2, dilation=2, stride=(2, 1)),
    _layer("Conv2d", (8, 8), 3, 8, 9, padding=4),
    _layer("Conv2d", (8, 8), 3, 8, 9, images=0),
    _layer("Conv3d", (3, 10), 3, 5, 6, 7, padding=1),
    _layer("Conv3d", (20, 33), (2, 3, 1), 5, 6, 7, stride=(2, 1, 2), dilation=(1, 2, 1)),
    _layer("Conv3d", (18, 18), 3, 5, 6, 7, groups=18, padding=1),
    _layer("Conv3d", (8, 12), 3, 5, 6, 7, groups=4, padding=1, bias=False),
    _layer("ConvTranspose1d", (6, 9), 4, 11, stride=2, padding=1),
    _layer("ConvTranspose2d", (24, 40), 2, 7, 8, stride=2),
    _layer("ConvTranspose2d", (24, 12), 4, 7, 8, stride=2, padding=1, bias=False),
    _layer("ConvTranspose2d", (9, 12), 3, 7, 8, stride=(3, 2), padding=1, output_padding=(2, 1), groups=3),
    _layer("ConvTranspose2d", (9, 12), 3, 5, 4, dilation=2, stride=2, output_padding=1),
    _layer("ConvTranspose2d", (8, 8), 3, 5, 4, groups=8, stride=2),
    _layer("ConvTranspose3d", (6, 10), (2, 3, 3), 4, 5, 6, stride=2, output_padding=1),
]


class Side(torch.nn.Module):
    """All layers side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(layer.module() for layer in LAYERS)

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(layer(x) for layer, x in zip(self.layers, inputs, strict=True))


@pytest.mark.parametrize("is_last", [False, True], ids=["planes", "channels-last"])
def test_every_parameter(is_last: bool) -> None:
    torch.manual_seed(0)
    model = Side().eval()
    inputs = tuple(layer.input(is_last=is_last) for layer in LAYERS)
    program = pteron.load(to_edge(torch.export.export(model, inputs)).to_executorch().buffer)
    with torch.no_grad():
        expected = model(*inputs)
    for layer, got, want in zip(LAYERS, program.load_method().execute(list(inputs)), expected, strict=True):
        assert got.shape == want.shape, layer
        torch.testing.assert_close(
            got, want, rtol=1e-5, atol=1e-5, msg=lambda m, layer=layer: f"{layer}: {m}"
        )


@pytest.mark.parametrize(
    "layer",
    [
        _layer("Conv2d", (3, 16), 3, 16, 16, stride=2, padding=1),
        _layer("Conv2d", (20, 40), 3, 16, 16, padding=1),
        _layer("Conv2d", (20, 40), 1, 16, 16),
        _layer("Conv2d", (20, 20), 3, 16, 16, padding=1, groups=20),
        _layer("ConvTranspose2d", (6, 8), 2, 16, 16, stride=2),
    ],
)
@pytest.mark.parametrize("is_last", [False, True], ids=["planes", "channels-last"])
def test_dynamic_extents(layer: Layer, is_last: bool) -> None:
    torch.manual_seed(0)
    model = layer.module().eval()
    n, h, w = (
        torch.export.Dim(name, min=low, max=high)
        for name, low, high in (("n", 1, 4), ("h", 4, 64), ("w", 4, 64))
    )
    exported = torch.export.export(
        model, (layer.input(is_last=is_last),), dynamic_shapes=({0: n, 2: h, 3: w},)
    )
    method = pteron.load(to_edge(exported).to_executorch().buffer).load_method()
    for images, height, width in [(1, 5, 64), (4, 64, 7), (2, 16, 16), (3, 33, 29)]:
        layer.images, layer.extents = images, (height, width)
        x = layer.input(is_last=is_last)
        with torch.no_grad():
            torch.testing.assert_close(method(x), model(x), rtol=1e-5, atol=1e-5)
