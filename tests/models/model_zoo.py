"""Models that must be right: small configurations of real architectures with fixed seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class ModelCase:
    """A model, the inputs to trace it with, and its dynamic dimensions (None: all static)."""

    name: str
    build: Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]


class Logits(nn.Module):
    """The logits of a transformers classifier, so that the program returns one tensor."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor) -> Tensor:
        return self.model(pixel_values=pixels).logits


def calibrate_batch_norm(model: nn.Module, inputs: Tensor) -> None:
    """Gives every batch norm the statistics of its own input, as training would have."""
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    model.train()
    with torch.no_grad():
        model(inputs)
    model.eval()


def _image(size: int) -> Tensor:
    return torch.randn(2, 3, size, size)


def resnet() -> tuple[nn.Module, tuple[Tensor, ...]]:
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(
        embedding_size=32,
        hidden_sizes=[32, 64, 128, 256],
        depths=[2, 2, 2, 2],
        layer_type="basic",
        num_labels=100,
    )
    model = Logits(ResNetForImageClassification(config))
    calibrate_batch_norm(model, _image(224))
    return model, (_image(224)[:1],)


def depthwise_cnn() -> tuple[nn.Module, tuple[Tensor, ...]]:
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    model = Logits(MobileNetV2ForImageClassification(MobileNetV2Config(image_size=160, depth_multiplier=0.5)))
    calibrate_batch_norm(model, _image(160))
    return model, (_image(160)[:1],)


class LstmTagger(nn.Module):
    """Two bidirectional layers and a projection, over a fixed number of steps."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, 32)
        self.lstm = nn.LSTM(32, 48, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(96, 10)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        hidden, (state, _) = self.lstm(self.embed(tokens))
        return self.head(hidden), state


def lstm() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return LstmTagger().eval(), (torch.randint(0, 100, (2, 12)),)


def mlp() -> tuple[nn.Module, tuple[Tensor, ...]]:
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 10))
    return model.eval(), (torch.randn(5, 64),)


def vit() -> tuple[nn.Module, tuple[Tensor, ...]]:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=96,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=192,
        image_size=64,
        patch_size=8,
    )
    return Logits(ViTForImageClassification(config)).eval(), (_image(64)[:1],)


MODELS = (
    ModelCase("resnet", resnet),
    ModelCase("depthwise_cnn", depthwise_cnn),
    ModelCase("lstm", lstm),
    ModelCase("mlp", mlp),
    ModelCase("vit", vit),
)
