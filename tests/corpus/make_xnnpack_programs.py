"""Writes the programs with XNNPACK payloads that `rust/pteron-xnnpack` is tested with: small models.

`python -m tests.corpus.make_xnnpack_programs`; the wheel of ExecuTorch is in the development environment.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

FOLDER = Path(__file__).parents[2] / "rust" / "pteron-xnnpack" / "tests" / "programs"


class Residual(nn.Module):
    """Convolutions with batch norms, a sum, pooling, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.second = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.last = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.first(x))
        x = torch.relu(x + self.second(x))
        result: torch.Tensor = self.last(x.mean((2, 3), keepdim=True).flatten(1))
        return result


class Inverted(nn.Module):
    """MobileNet's block: depthwise convolution, hardswish, squeeze and excitation."""

    def __init__(self) -> None:
        super().__init__()
        self.widen = nn.Conv2d(4, 8, 1)
        self.deep = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.squeeze = nn.Conv2d(8, 4, 1)
        self.excite = nn.Conv2d(4, 8, 1)
        self.narrow = nn.Conv2d(8, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.relu6(self.deep(nn.functional.hardswish(self.widen(x))))
        scale = nn.functional.hardsigmoid(self.excite(torch.relu(self.squeeze(y.mean((2, 3), keepdim=True)))))
        result: torch.Tensor = x + self.narrow(y * scale)
        return result


class Block(nn.Module):
    """A transformer's block without masks."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.q, self.k, self.v, self.o = (nn.Linear(8, 8) for _ in range(4))
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        q, k, v = (layer(y).view(-1, 5, 2, 4).transpose(1, 2) for layer in (self.q, self.k, self.v))
        scores = torch.softmax(q @ k.transpose(2, 3) / 2.0, -1)
        x = x + self.o((scores @ v).transpose(1, 2).reshape(-1, 5, 8))
        result: torch.Tensor = x + self.down(nn.functional.gelu(self.up(x)))
        return result


class Steps(nn.Module):
    """An LSTM, unrolled by export."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 6, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.lstm(x)[0]
        return result


class Upscale(nn.Module):
    """Transposed convolutions, resizing, padding, slices, concatenation, largest elements."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(4, 2, 3, stride=2, padding=1, output_padding=1)
        self.groups = nn.ConvTranspose2d(4, 4, 2, stride=2, groups=2)
        self.slope = nn.PReLU(6)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        y = self.slope(torch.cat([self.up(x), self.groups(x)], 1))
        y = nn.functional.interpolate(y, size=(12, 10), mode="bilinear", align_corners=False)
        largest, where = nn.functional.pad(y[:, 1:4], (1, 2, 0, 1)).max(2, keepdim=True)
        return nn.functional.avg_pool2d(y, 2), largest, where


class Functions(nn.Module):
    """Elementwise functions."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        a = torch.abs(x).sqrt() + torch.floor(x) * torch.ceil(y) - torch.sin(x) / (torch.cos(y) + 2.0)
        b = torch.maximum(torch.neg(x), torch.minimum(y * y, torch.tanh(x)))
        c = nn.functional.elu(a) + nn.functional.leaky_relu(b, 0.1) + torch.sigmoid(a).clamp(0.1, 0.8)
        return torch.exp(-torch.abs(c)) + torch.rsqrt(torch.abs(c) + 1.0) + torch.log(torch.abs(c) + 1.0)


def lowered(model: nn.Module, inputs: tuple[torch.Tensor, ...], **options: Any) -> bytes:
    """The program with everything that XNNPACK takes delegated to it."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    exported = torch.export.export(model, inputs, strict=True, **options)
    return bytes(
        to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()]).to_executorch().buffer
    )


def quantised(
    model: nn.Module, inputs: tuple[torch.Tensor, ...], *, is_dynamic: bool, is_per_channel: bool = True
) -> bytes:
    """The same, of the model quantised with XNNPACK's quantiser."""
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    quantizer = XNNPACKQuantizer().set_global(
        get_symmetric_quantization_config(is_per_channel=is_per_channel, is_dynamic=is_dynamic)
    )
    prepared = prepare_pt2e(torch.export.export(model, inputs, strict=True).module(), quantizer)
    prepared(*inputs)
    return lowered(convert_pt2e(prepared), inputs)


def four_bits(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> bytes:
    """The same, of the model with 4-bit weights in groups and 8-bit rows."""
    from torchao.quantization.granularity import PerGroup
    from torchao.quantization.quant_api import Int8DynamicActivationIntxWeightConfig, quantize_

    quantize_(
        model,
        Int8DynamicActivationIntxWeightConfig(
            weight_dtype=torch.int4,  # type: ignore[attr-defined]
            weight_granularity=PerGroup(32),
        ),
    )
    return lowered(model, inputs)


def programs() -> dict[str, bytes]:
    """All programs by name."""
    torch.set_num_threads(1)
    torch.manual_seed(0)

    def made(model: nn.Module) -> nn.Module:
        torch.manual_seed(0)
        for parameter in model.parameters():
            nn.init.uniform_(parameter, -0.5, 0.5)
        return model.eval()

    image, small = torch.randn(1, 3, 16, 16), torch.randn(1, 4, 6, 5)
    batch = torch.export.Dim("batch", min=1, max=4)
    linear = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 3))
    return {
        "residual": lowered(made(Residual()), (image,)),
        "residual_dynamic": lowered(
            made(Residual()), (torch.randn(2, 3, 16, 16),), dynamic_shapes={"x": {0: batch}}
        ),
        "residual_int8": quantised(made(Residual()), (image,), is_dynamic=False),
        "residual_int8_per_tensor": quantised(
            made(Residual()), (image,), is_dynamic=False, is_per_channel=False
        ),
        "residual_dynamic_int8": quantised(made(Residual()), (image,), is_dynamic=True),
        "inverted": lowered(made(Inverted()), (small,)),
        "inverted_int8": quantised(made(Inverted()), (small,), is_dynamic=False),
        "block": lowered(made(Block()), (torch.randn(1, 5, 8),)),
        "block_dynamic_int8": quantised(made(Block()), (torch.randn(1, 5, 8),), is_dynamic=True),
        "steps": lowered(made(Steps()), (torch.randn(2, 3, 4),)),
        "upscale": lowered(made(Upscale()), (small,)),
        "functions": lowered(Functions(), (torch.randn(3, 4), torch.randn(3, 4))),
        "linear_half": lowered(made(linear).half(), (torch.randn(2, 64).half(),)),
        "linear_four_bits": four_bits(made(linear.float()), (torch.randn(2, 64),)),
    }


def main() -> int:
    """Writes the files."""
    for name, program in programs().items():
        (FOLDER / f"{name}.pte").write_bytes(program)
        print(f"{name}.pte: {len(program)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
