"""Models whose plans are reviewed: structures of real ones, random weights, small unless told otherwise."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tests.models.model_zoo import Logits, calibrate_batch_norm
from tests.models.unet import UNet

Shapes = Any


@dataclass(frozen=True)
class PlanModel:
    """A module, the arguments it is traced with, and its dynamic dimensions."""

    module: nn.Module
    arguments: tuple[Tensor, ...]
    dynamic_shapes: Shapes = None
    keywords: dict[str, Tensor] | None = None
    options: dict[str, Any] | None = None

    def export(self) -> torch.export.ExportedProgram:
        with warnings.catch_warnings():
            # LSTM modules keep their weights in a list besides.
            warnings.simplefilter("ignore")
            return torch.export.export(
                self.module.eval(),
                self.arguments,
                kwargs=self.keywords,
                dynamic_shapes=self.dynamic_shapes,
                **(self.options or {}),
            )


def _image_model(model: nn.Module, size: int) -> PlanModel:
    module = Logits(model)
    calibrate_batch_norm(module, torch.randn(2, 3, size, size))
    return PlanModel(module, (torch.randn(1, 3, size, size),))


def resnet50(is_full: bool) -> PlanModel:
    from transformers import ResNetConfig, ResNetForImageClassification

    small = {} if is_full else {"embedding_size": 16, "hidden_sizes": [32, 48, 64, 96], "num_labels": 10}
    config = ResNetConfig(depths=[3, 4, 6, 3], layer_type="bottleneck", **small)
    return _image_model(ResNetForImageClassification(config), 224 if is_full else 64)


def mobilenet_v2(is_full: bool) -> PlanModel:
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    size = 224 if is_full else 64
    config = MobileNetV2Config(image_size=size, depth_multiplier=1.0 if is_full else 0.35, num_labels=10)
    return _image_model(MobileNetV2ForImageClassification(config), size)


def efficientnet_b0(is_full: bool) -> PlanModel:
    from transformers import EfficientNetConfig, EfficientNetForImageClassification

    size = 224 if is_full else 64
    config = EfficientNetConfig(
        image_size=size, width_coefficient=1.0, depth_coefficient=1.0, hidden_dim=1280, num_labels=10
    )
    return _image_model(EfficientNetForImageClassification(config), size)


class SentenceEncoder(nn.Module):
    """The six layers of MiniLM-L6, mean pooling under a mask, unit length."""

    def __init__(self, is_full: bool) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        width = 384 if is_full else 48
        self.encoder = BertModel(
            BertConfig(
                vocab_size=100,
                hidden_size=width,
                num_hidden_layers=6,
                num_attention_heads=12,
                intermediate_size=4 * width,
            )
        )

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        hidden = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        weights = mask[:, :, None].to(hidden.dtype)
        mean = (hidden * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
        return nn.functional.normalize(mean)


def minilm(is_full: bool) -> PlanModel:
    tokens = 128 if is_full else 12
    return PlanModel(
        SentenceEncoder(is_full), (torch.arange(tokens)[None] % 100, torch.ones(1, tokens).long())
    )


def minilm_dynamic(is_full: bool) -> PlanModel:
    model = minilm(is_full)
    length = torch.export.Dim("length", min=2, max=512)
    return PlanModel(model.module, model.arguments, ({1: length}, {1: length}))


def vit(is_full: bool) -> PlanModel:
    from transformers import ViTConfig, ViTForImageClassification

    small = {"hidden_size": 48, "intermediate_size": 96, "num_attention_heads": 3, "image_size": 64}
    config = ViTConfig(**({} if is_full else small))
    module = Logits(ViTForImageClassification(config))
    return PlanModel(module, (torch.randn(1, 3, config.image_size, config.image_size),))


class Lstm(nn.Module):
    """Two layers and a projection of the last step."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width // 2, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, 8)

    def forward(self, x: Tensor) -> Tensor:
        hidden, _ = self.lstm(x)
        result: Tensor = self.head(hidden[:, -1])
        return result


def lstm(is_full: bool) -> PlanModel:
    width, steps = (256, 32) if is_full else (32, 8)
    return PlanModel(Lstm(width), (torch.randn(1, steps, width // 2),))


def gpt2_prefill(is_full: bool) -> PlanModel:
    from transformers import GPT2Config, GPT2LMHeadModel

    small = {"vocab_size": 100, "n_embd": 48, "n_positions": 32, "bos_token_id": 1, "eos_token_id": 2}
    config = GPT2Config(use_cache=False, **({} if is_full else small))

    class Prefill(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = GPT2LMHeadModel(config)

        def forward(self, ids: Tensor) -> Tensor:
            result: Tensor = self.model(input_ids=ids).logits
            return result

    return PlanModel(Prefill(), (torch.arange(16)[None],))


def unet(is_full: bool) -> PlanModel:
    model = UNet(width=16 if is_full else 8)
    size = 256 if is_full else 64
    calibrate_batch_norm(model, torch.randn(2, 3, size, size))
    return PlanModel(model, (torch.randn(1, 3, size, size),))


def _of_the_zoo(build: Callable[[], Any], name: str) -> PlanModel:
    method = build().methods[name]
    return PlanModel(method.module, (), method.dynamic, dict(method.example), dict(method.options))


def whisper_encoder(is_full: bool) -> PlanModel:
    from tests.models.zoo_speech import whisper_encoder as build

    del is_full
    return _of_the_zoo(build, "forward")


def llama_with_cache(is_full: bool) -> PlanModel:
    from tests.models.zoo_decoders import llama as build

    del is_full
    return _of_the_zoo(build, "forward")


class Dlrm(nn.Module):
    """Recommendation: dense features through an MLP, sparse ones through tables, then their products."""

    def __init__(self, width: int = 16, tables: int = 4) -> None:
        super().__init__()
        self.dense = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, width), nn.ReLU())
        self.tables = nn.ModuleList(nn.Embedding(50, width) for _ in range(tables))
        pairs = (tables + 1) * (tables + 1)
        self.top = nn.Sequential(nn.Linear(pairs + width, 32), nn.ReLU(), nn.Linear(32, 1), nn.Sigmoid())

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        x = self.dense(dense)
        vectors = torch.stack([x, *(table(sparse[:, i]) for i, table in enumerate(self.tables))], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)
        result: Tensor = self.top(torch.cat([x, products], dim=1))
        return result


def dlrm(is_full: bool) -> PlanModel:
    del is_full
    return PlanModel(Dlrm(), (torch.randn(3, 13), torch.randint(0, 50, (3, 4))))


MODELS: dict[str, Callable[[bool], PlanModel]] = {
    build.__name__: build
    for build in (
        resnet50,
        mobilenet_v2,
        efficientnet_b0,
        minilm,
        minilm_dynamic,
        vit,
        lstm,
        gpt2_prefill,
        unet,
        whisper_encoder,
        llama_with_cache,
        dlrm,
    )
}
