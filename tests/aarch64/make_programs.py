"""Exports the programs of `check_programs.py`: python -m tests.aarch64.make_programs FOLDER

Runs where torch is. Each program comes with inputs and with what eager PyTorch makes of them, so that it can
be checked where torch is not. Every family of kernels that has code for an instruction set is in one of them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import pteron
from pteron.quant import quantize


class Elementwise(nn.Module):
    """Functions with vector code, over lengths that leave a rest."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        positive = x.abs() + 0.01
        return (
            torch.exp(x),
            torch.tanh(x),
            torch.erf(x),
            torch.sigmoid(x),
            torch.log(positive),
            torch.sin(x),
            torch.cos(x),
            torch.sqrt(positive),
            torch.rsqrt(positive),
            functional.gelu(x),
            functional.silu(x),
            torch.pow(positive, 1.7),
            torch.clamp(x, -0.5, 0.7),
            torch.atan(x),
            torch.where(x > 0.1, x, -x),
            x * 2.5 + positive / 3,
        )


class Reductions(nn.Module):
    """Sums, extremes, norms and softmax along both ends."""

    def __init__(self) -> None:
        super().__init__()
        self.layer_norm, self.group_norm = nn.LayerNorm(37), nn.GroupNorm(2, 6)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x.sum(-1),
            x.mean(0),
            x.amax(1),
            x.var(-1),
            x.argmax(-1),
            x.cumsum(1),
            torch.softmax(x, -1),
            torch.softmax(x, 0),
            torch.log_softmax(x, 1),
            self.layer_norm(x),
            self.group_norm(x),
            torch.linalg.vector_norm(x, dim=-1),
        )


class Perceptron(nn.Module):
    """Products of many rows and of one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(67, 150), nn.Linear(150, 33)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = self.second(functional.gelu(self.first(x)))
        return rows, self.second(torch.relu(self.first(x[:1])))


class Attention(nn.Module):
    """Heads over a causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(64, 192)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (4, 16)).transpose(1, 2) for part in self.project(x).chunk(3, -1))
        mask = torch.full((x.shape[1], x.shape[1]), float("-inf")).triu(1)
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)


def convolutions() -> nn.Module:
    """Planar, Winograd, depthwise of three sizes, strided, grouped and pointwise convolutions, pools."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 40, 3, padding=1),
        nn.BatchNorm2d(40),
        nn.SiLU(),
        nn.Conv2d(40, 40, 3, padding=1, groups=40),
        nn.Hardswish(),
        nn.Conv2d(40, 40, 5, stride=2, padding=2, groups=40),
        nn.Conv2d(40, 24, 1),
        nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(24, 24, 3, padding=1, groups=4),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.AvgPool2d(2),
        nn.Conv2d(24, 24, 7, padding=3, groups=24),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(24, 10),
    )


def integer_network() -> nn.Module:
    """What int8 kernels there are: windows, depthwise windows, pointwise and linear layers."""
    return nn.Sequential(
        nn.Conv2d(3, 20, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(20, 20, 3, padding=1, groups=20),
        nn.ReLU(),
        nn.Conv2d(20, 36, 1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(36, 40, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(40, 10),
    )


def write(
    folder: Path,
    name: str,
    model: nn.Module,
    inputs: tuple[torch.Tensor, ...],
    tolerance: float,
    exact: bool = False,
) -> None:
    """The program, its inputs, what eager PyTorch answers, and how far an answer may be from that.

    tolerance: as a part of the answer's largest number.
    exact: results are the same bytes at every instruction set; those of here are kept, too.
    """
    pteron.export(model, inputs, check=False).save(folder / f"{name}.pte")
    with torch.no_grad():
        expected = model(*inputs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    arrays = {f"expected{i}": value.double().numpy() for i, value in enumerate(expected)}
    for i, value in enumerate(inputs):
        # A file of NumPy has no bfloat16: its bits are kept.
        arrays[f"input{i}"] = (
            value.view(torch.int16).numpy() if value.dtype == torch.bfloat16 else value.numpy()
        )
    if exact:
        arrays["bytes"] = np.asarray(pteron.load(folder / f"{name}.pte").run("forward", *inputs))
    np.savez(
        folder / f"{name}.npz", tolerance=tolerance, is_bfloat16=inputs[0].dtype == torch.bfloat16, **arrays
    )


def main(folder: Path) -> None:
    """Writes all programs."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    write(folder, "elementwise", Elementwise().eval(), (torch.randn(3, 101) * 2,), 1e-6)
    write(folder, "reductions", Reductions().eval(), (torch.randn(5, 6, 37),), 2e-6)
    write(folder, "perceptron", Perceptron().eval(), (torch.randn(45, 67),), 1e-5)
    write(folder, "attention", Attention().eval(), (torch.randn(2, 53, 64),), 1e-5)
    write(folder, "convolutions", convolutions().eval(), (torch.randn(1, 3, 61, 59),), 1e-5)
    for name, dtype in (("bfloat16", torch.bfloat16), ("float16", torch.float16)):
        write(folder, name, Perceptron().eval().to(dtype), (torch.randn(45, 67).to(dtype),), 2e-2)
    image = (torch.randn(1, 3, 24, 20),)
    calibration = [(torch.randn(1, 3, 24, 20),) for _ in range(4)]
    write(
        folder,
        "int8",
        quantize(integer_network().eval(), image, calibration, scheme="int8"),
        image,
        2e-2,
        exact=True,
    )
    rows = (torch.randn(13, 67),)
    model = nn.Sequential(nn.Linear(67, 96), nn.ReLU(), nn.Linear(96, 31)).eval()
    write(folder, "int8-rows", quantize(model, rows, [rows], scheme="int8-dynamic"), rows, 2e-2)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
