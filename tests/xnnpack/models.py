"""Models for XNNPACK's partitioner: one for each kind of node, and small networks.

A model has inputs, dimensions that may change, and how it is quantised. `NODES` are modules of one operator,
`INT8` those that have a form of int8.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class Call(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Tensor) -> Any:
        return self.function(*args)


@dataclass(frozen=True)
class Case:
    """What is lowered.

    `quantized`: None, "static", "dynamic", "four bits" (weights in groups, rows of 8 bits) or "four bits by
    output". `sizes`: an axis of the first input whose extent changes, the
    smallest and largest, and those to run with. `leftover`: may the partitioner leave operators outside?
    `is_bfloat16`: are weights and inputs bfloat16, which the partitioner takes when asked to?
    """

    build: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Tensor, ...]]
    quantized: str | None = None
    sizes: tuple[int, int, int, tuple[int, ...]] | None = None
    leftover: bool = False
    is_bfloat16: bool = False


def image(channels: int = 4, size: int = 8) -> Callable[[], tuple[Tensor, ...]]:
    """A batch of two images."""
    return lambda: (torch.randn(2, channels, size, size),)


def matrix(*shape: int) -> Callable[[], tuple[Tensor, ...]]:
    """One tensor."""
    return lambda: (torch.randn(*shape),)


def pair(*shape: int) -> Callable[[], tuple[Tensor, ...]]:
    """Two tensors."""
    return lambda: (torch.randn(*shape), torch.randn(*shape))


def of(function: Callable[..., Any]) -> Callable[[], nn.Module]:
    """Builds a function's module."""
    return lambda: Call(function)


def positive() -> tuple[Tensor, ...]:
    """A tensor above zero."""
    return (torch.rand(3, 5) + 0.1,)


NODES: dict[str, Case] = {
    "Add": Case(of(lambda x, y: x + y), pair(3, 5)),
    "Add, relu": Case(of(lambda x, y: torch.relu(x + y)), pair(3, 5)),
    "Add, broadcast": Case(of(lambda x, y: x + y), lambda: (torch.randn(2, 3, 5), torch.randn(5))),
    "FullyConnected": Case(lambda: nn.Linear(7, 5), matrix(3, 7)),
    "FullyConnected, rank 3": Case(lambda: nn.Linear(7, 5, bias=False), matrix(2, 3, 7)),
    "FullyConnected, relu": Case(lambda: nn.Sequential(nn.Linear(7, 5), nn.ReLU()), matrix(3, 7)),
    "Softmax": Case(of(lambda x: torch.softmax(x, -1)), matrix(3, 5)),
    "Sigmoid": Case(of(torch.sigmoid), matrix(3, 5)),
    "StaticTranspose": Case(of(lambda x: x.permute(2, 0, 1)), matrix(2, 3, 4)),
    "Clamp": Case(of(lambda x: torch.clamp(x, -0.5, 0.5)), matrix(3, 5)),
    "Clamp, hardtanh": Case(lambda: nn.Hardtanh(), matrix(3, 5)),
    "Conv2d": Case(lambda: nn.Conv2d(4, 6, 3, padding=1), image()),
    "Conv2d, stride, groups": Case(lambda: nn.Conv2d(4, 6, 3, stride=2, groups=2, bias=False), image()),
    "Conv2d, dilation": Case(lambda: nn.Sequential(nn.Conv2d(4, 6, 3, dilation=2), nn.ReLU6()), image()),
    "Conv1d": Case(lambda: nn.Conv1d(4, 6, 3, padding=1), matrix(2, 4, 9)),
    "Conv2d, batch norm": Case(
        lambda: nn.Sequential(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), nn.ReLU()), image()
    ),
    "Div": Case(of(lambda x, y: x / y.exp()), pair(3, 5)),
    "StaticResizeBilinear2D": Case(
        of(lambda x: functional.interpolate(x, scale_factor=2.0, mode="bilinear")), image()
    ),
    "StaticResizeBilinear2D, corners": Case(
        of(lambda x: functional.interpolate(x, size=(13, 5), mode="bilinear", align_corners=True)), image()
    ),
    "StaticConstantPad": Case(of(lambda x: functional.pad(x, (1, 2, 0, 3), value=0.5)), image()),
    "AvgPooling2d": Case(lambda: nn.AvgPool2d(2), image()),
    "Minimum": Case(of(torch.minimum), pair(3, 5)),
    "DepthwiseConv2d": Case(lambda: nn.Conv2d(4, 4, 3, padding=1, groups=4), image()),
    "DepthwiseConv2d, multiplier": Case(lambda: nn.Conv2d(4, 8, 3, stride=2, groups=4), image()),
    "MaxPooling2d": Case(lambda: nn.MaxPool2d(3, stride=2, padding=1), image()),
    "MaxPooling2d, ceil": Case(lambda: nn.MaxPool2d(3, stride=2, ceil_mode=True), image()),
    "Multiply": Case(of(lambda x, y: x * y), pair(3, 5)),
    "Subtract": Case(of(lambda x, y: x - y), pair(3, 5)),
    "Floor": Case(of(torch.floor), matrix(3, 5)),
    "GlobalAvgPooling2d": Case(of(lambda x: x.mean((2, 3), keepdim=True)), image()),
    "StaticReshape": Case(of(lambda x: x.view(6, 2)), matrix(3, 4)),
    "SquareRoot": Case(of(torch.sqrt), positive),
    "Ceiling": Case(of(torch.ceil), matrix(3, 5)),
    "Hardswish": Case(lambda: nn.Hardswish(), matrix(3, 5)),
    "LeakyReLU": Case(lambda: nn.LeakyReLU(0.2), matrix(3, 5)),
    "Maximum": Case(of(torch.maximum), pair(3, 5)),
    "Negate": Case(of(torch.neg), matrix(3, 5)),
    "Square": Case(of(lambda x: x**2), matrix(3, 5)),
    "ELU": Case(lambda: nn.Sequential(nn.Linear(5, 5), nn.ELU(0.7)), matrix(3, 5), leftover=True),
    "Abs": Case(of(torch.abs), matrix(3, 5)),
    "PReLU": Case(lambda: nn.PReLU(4, 0.3), image()),
    "Concatenate2": Case(of(lambda x, y: torch.cat((x, y), 1)), pair(3, 5)),
    "Concatenate3": Case(of(lambda x, y: torch.cat((x, y, x), -1)), pair(3, 5)),
    "Concatenate4": Case(of(lambda x, y: torch.cat((x, y, x, y), 0)), pair(3, 5)),
    "Concatenate5": Case(of(lambda x, y: torch.cat((x, y, x, y, y), 1)), pair(3, 5)),
    "StaticSlice": Case(of(lambda x: x[:, 1:4]), matrix(3, 5)),
    "BatchMatrixMultiply": Case(of(torch.bmm), lambda: (torch.randn(2, 3, 4), torch.randn(2, 4, 5))),
    "ConvTranspose2d": Case(lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1), image()),
    "ReciprocalSquareRoot": Case(of(torch.rsqrt), positive),
    "Log": Case(of(torch.log), positive),
    "Gelu": Case(lambda: nn.GELU(), matrix(3, 5)),
    "Tanh": Case(of(torch.tanh), matrix(3, 5)),
    "Exp": Case(of(torch.exp), matrix(3, 5)),
    "Sin": Case(of(torch.sin), matrix(3, 5)),
    "Cos": Case(of(torch.cos), matrix(3, 5)),
    "Copy": Case(of(lambda x: x.clone() + x), matrix(3, 5)),
}


class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[1]
        q, k, v = (part.view(1, n, 2, 8).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        scores = torch.softmax(q @ k.transpose(2, 3) / 8**0.5, -1)
        x = x + self.out((scores @ v).transpose(1, 2).reshape(1, n, 16))
        result: Tensor = x + self.down(functional.gelu(self.up(x)))
        return result


class Residual(nn.Module):
    """A residual block, pooling and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.pool = nn.MaxPool2d(2)
        self.one = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.two = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8))
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.stem(x))
        x = torch.relu(x + self.two(self.one(x)))
        result: Tensor = self.head(x.mean((2, 3)))
        return result


class Mobile(nn.Module):
    """An inverted residual with squeeze and excitation."""

    def __init__(self) -> None:
        super().__init__()
        self.expand = nn.Sequential(nn.Conv2d(3, 12, 1), nn.BatchNorm2d(12), nn.Hardswish())
        self.depthwise = nn.Sequential(
            nn.Conv2d(12, 12, 3, padding=1, groups=12), nn.BatchNorm2d(12), nn.ReLU6()
        )
        self.squeeze, self.excite = nn.Conv2d(12, 4, 1), nn.Conv2d(4, 12, 1)
        self.project = nn.Sequential(nn.Conv2d(12, 3, 1), nn.BatchNorm2d(3))

    def forward(self, x: Tensor) -> Tensor:
        y = self.depthwise(self.expand(x))
        gate = functional.hardsigmoid(self.excite(torch.relu(self.squeeze(y.mean((2, 3), keepdim=True)))))
        result: Tensor = x + self.project(y * gate)
        return result


class Cells(nn.Module):
    """An LSTM over four steps."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 8, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.lstm(x)[0]
        return result


class Parts(nn.Module):
    """Delegates with operators between them."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(6, 8), nn.Linear(8, 6)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.cumsum(self.one(x), 1)
        return self.two(torch.relu(y)), y


def convolutions() -> nn.Module:
    """Convolutions of each kind, as int8 has them."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1, groups=8),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 6, 1),
        nn.Flatten(),
        nn.Linear(96, 5),
    )


def int8(build: Callable[[], nn.Module], *shapes: tuple[int, ...]) -> Case:
    """A case of static int8, large enough for rounding to show: tensors of these shapes, a wide one first."""
    scales = [3.0, 1.0]
    return Case(
        build, lambda: tuple(torch.randn(s) * k for s, k in zip(shapes, scales, strict=False)), "static"
    )


IMAGE = (2, 16, 24, 24)
#: A residual sum rounds otherwise in fixed point than in floats in one of 40,000 elements.
LARGE = (4, 16, 64, 64)

INT8: dict[str, Case] = {
    "int8 Add": int8(of(lambda x, y: x + y), LARGE, LARGE),
    "int8 Add, relu": int8(of(lambda x, y: torch.relu(x + y)), LARGE, LARGE),
    "int8 Add, broadcast": int8(of(lambda x, y: x + y), LARGE, (16, 1, 1)),
    "int8 Add, one value": int8(of(lambda x: x + x), IMAGE),
    "int8 Multiply": int8(of(lambda x, y: x * y), LARGE, LARGE),
    "int8 Multiply, relu": int8(of(lambda x, y: torch.relu(x * y)), LARGE, LARGE),
    "int8 Concatenate2": int8(of(lambda x, y: torch.cat((x, y), 1)), IMAGE, IMAGE),
    "int8 Conv2d": int8(lambda: nn.Conv2d(16, 32, 3, padding=1), IMAGE),
    "int8 Conv2d, relu": int8(lambda: nn.Sequential(nn.Conv2d(16, 32, 3), nn.ReLU()), IMAGE),
    "int8 Conv2d, relu6": int8(lambda: nn.Sequential(nn.Conv2d(16, 32, 3), nn.ReLU6()), IMAGE),
    "int8 Conv2d, stride, groups": int8(lambda: nn.Conv2d(16, 32, 3, groups=4, stride=2), IMAGE),
    "int8 Conv2d, pointwise": int8(lambda: nn.Conv2d(16, 32, 1), IMAGE),
    "int8 Conv1d": int8(lambda: nn.Conv1d(16, 32, 3), (2, 16, 99)),
    "int8 DepthwiseConv2d": int8(lambda: nn.Conv2d(16, 16, 3, padding=1, groups=16), IMAGE),
    "int8 ConvTranspose2d": int8(lambda: nn.ConvTranspose2d(16, 8, 3, stride=2), IMAGE),
    "int8 FullyConnected": int8(lambda: nn.Linear(64, 48), (128, 64)),
    "int8 FullyConnected, relu": int8(lambda: nn.Sequential(nn.Linear(64, 48), nn.ReLU()), (128, 64)),
    "int8 Clamp": int8(lambda: nn.Sequential(nn.Conv2d(16, 8, 1), nn.Hardtanh(-0.5, 0.5)), IMAGE),
    "int8 MaxPooling2d": int8(lambda: nn.Sequential(nn.Conv2d(16, 8, 1), nn.MaxPool2d(2)), IMAGE),
    "int8 GlobalAvgPooling2d": int8(
        lambda: nn.Sequential(nn.Conv2d(16, 32, 1), nn.AdaptiveAvgPool2d(1)), (16, 16, 7, 7)
    ),
    "int8 StaticReshape": int8(lambda: nn.Sequential(nn.Conv2d(16, 8, 1), nn.Flatten()), IMAGE),
    "int8 StaticSlice": int8(of(lambda x: x[:, 2:9] + x[:, 4:11]), IMAGE),
}

NETWORKS: dict[str, Case] = {
    "linear": Case(lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), matrix(3, 8)),
    "residual": Case(Residual, lambda: (torch.randn(1, 3, 16, 16),)),
    "mobile": Case(Mobile, lambda: (torch.randn(1, 3, 8, 8),)),
    "block": Case(Block, matrix(1, 5, 16)),
    "cells": Case(Cells, matrix(2, 4, 6)),
    "parts": Case(Parts, matrix(4, 6)),
    "linear, any rows": Case(
        lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)),
        matrix(3, 8),
        sizes=(0, 1, 9, (1, 9, 4)),
    ),
    "block, any length": Case(Block, matrix(1, 5, 16), sizes=(1, 2, 12, (12, 2, 7))),
    "residual, any batch": Case(Residual, lambda: (torch.randn(2, 3, 16, 16),), sizes=(0, 1, 4, (4, 1, 3))),
    "int8 linear": Case(
        lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), matrix(6, 8), "static"
    ),
    "int8 convolutions": Case(convolutions, lambda: (torch.randn(2, 3, 8, 8),), "static"),
    "int8 residual": Case(Residual, lambda: (torch.randn(1, 3, 16, 16),), "static"),
    "int8 mobile": Case(Mobile, lambda: (torch.randn(1, 3, 8, 8),), "static"),
    "four bits": Case(
        lambda: nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 5, bias=False)),
        matrix(6, 64),
        "four bits",
        sizes=(0, 1, 9, (1, 9)),
    ),
    "four bits by output": Case(
        lambda: nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 40)),
        matrix(2, 3, 64),
        "four bits by output",
    ),
    "dynamic int8": Case(
        lambda: nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 4)), matrix(6, 32), "dynamic"
    ),
    "bfloat16": Case(
        lambda: nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 32)).bfloat16(),
        lambda: (torch.randn(6, 64).bfloat16(),),
        is_bfloat16=True,
    ),
}

CASES: dict[str, Case] = {**NODES, **INT8, **NETWORKS}


def file_name(case: str) -> str:
    """The name of the file that `lower` writes for a case."""
    return f"{list(CASES).index(case)}.pte"
