"""A small U-Net: skips that stay in use across the whole inner network, as in the full model."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Twice(nn.Sequential):
    """Two 3x3 convolutions, each with batch norm and ReLU."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
        )


class UNet(nn.Module):
    """Encoder and decoder with a skip per level; `levels` halvings of an RGB image, `classes` masks."""

    def __init__(self, width: int = 16, levels: int = 4, classes: int = 2) -> None:
        super().__init__()
        widths = [width << level for level in range(levels + 1)]
        self.down = nn.ModuleList(Twice(a, b) for a, b in zip([3, *widths], widths[:-1], strict=False))
        self.pool = nn.MaxPool2d(2)
        self.bottom = Twice(widths[-2], widths[-1])
        pairs = list(zip(widths[1:], widths[:-1], strict=True))[::-1]
        self.grow = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, stride=2) for a, b in pairs)
        self.up = nn.ModuleList(Twice(2 * b, b) for _, b in pairs)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = self.pool(x)
        x = self.bottom(x)
        for grow, block in zip(self.grow, self.up, strict=True):
            x = block(torch.cat([skips.pop(), grow(x)], dim=1))
        return self.head(x)


def unet(size: int = 256) -> tuple[nn.Module, tuple[Tensor, ...]]:
    return UNet().eval(), (torch.randn(1, 3, size, size),)
