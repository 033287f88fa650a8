"""The models that vendors' compilers lower: random weights, small images, every family of layers once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Tensors = tuple[torch.Tensor, ...]


@dataclass
class Model:
    """A module with an example of its inputs, and the dimensions that may differ from it."""

    module: nn.Module
    inputs: Tensors
    dynamic_shapes: Any = None
    #: Another call of the program, of other extents.
    other_inputs: Tensors | None = None


class ConvolutionNet(nn.Module):
    """A convolution with batch norm, pooling and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8 * 16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = torch.relu(self.norm(self.convolution(x)))
        return self.head(nn.functional.max_pool2d(features, 2).flatten(1))


class Sum(nn.Module):
    """One addition."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


class TwoLinears(nn.Module):
    """Two layers with an activation between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


class Recurrent(nn.Module):
    """A recurrent layer with a classifier of its last step."""

    def __init__(self, layer: type[nn.RNNBase]) -> None:
        super().__init__()
        self.layer = layer(8, 16, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(x)[0][:, -1])


class Attention(nn.Module):
    """Attention written out: products, a scale, softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(16, 16) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.query(x) @ self.key(x).transpose(1, 2) / 4.0
        return torch.softmax(scores, -1) @ self.value(x)


class Activations(nn.Module):
    """A convolution for each of the activations that have an operator of their own."""

    def __init__(self) -> None:
        super().__init__()
        kinds = (nn.LeakyReLU(0.1), nn.ELU(), nn.Hardswish(), nn.Sigmoid(), nn.Tanh(), nn.ReLU6(), nn.GELU())
        self.layers = nn.Sequential(*(part for kind in kinds for part in (nn.Conv2d(4, 4, 1), kind)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class SmallUnet(nn.Module):
    """Two levels: strided convolution, bilinear resize, concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.middle = nn.Conv2d(8, 8, 3, padding=1)
        self.up = nn.Conv2d(11, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        middle = torch.relu(self.middle(torch.relu(self.down(x))))
        wide = nn.functional.interpolate(middle, scale_factor=2.0, mode="bilinear", align_corners=False)
        return self.up(torch.cat([wide, x], 1))


class Separable(nn.Module):
    """Depthwise and pointwise convolutions with a residual, pooled by their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False)
        self.depthwise = nn.Conv2d(16, 16, 5, padding=4, dilation=2, groups=16)
        self.pointwise = nn.Conv2d(16, 16, 1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(16) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        stem = nn.functional.relu6(self.norms[0](self.stem(x)))
        features = nn.functional.relu6(self.norms[1](self.depthwise(stem)))
        return (self.norms[2](self.pointwise(features)) + stem).mean((2, 3))


class FirstOutput(nn.Module):
    """A model of transformers; its first output alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.model(*inputs)[0]


class RotaryDecoder(nn.Module):
    """A decoder block in the manner of Llama: RMS norm, rotated queries, a gated feed-forward part."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.second_norm = nn.RMSNorm(16), nn.RMSNorm(16)
        self.queries, self.keys, self.values, self.out = (nn.Linear(16, 16, bias=False) for _ in range(4))
        self.gate, self.up = nn.Linear(16, 32, bias=False), nn.Linear(16, 32, bias=False)
        self.down = nn.Linear(32, 16, bias=False)
        angles = torch.arange(6).unsqueeze(1) * torch.tensor([1.0, 0.1, 1.0, 0.1])
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def rotated(self, x: torch.Tensor) -> torch.Tensor:
        left, right = x.chunk(2, -1)
        return x * self.cosine + torch.cat([-right, left], -1) * self.sine

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.norm(x)
        query, key, value = (
            part(normed).view(1, 6, 4, 4).transpose(1, 2) for part in (self.queries, self.keys, self.values)
        )
        attention = nn.functional.scaled_dot_product_attention(self.rotated(query), self.rotated(key), value)
        x = x + self.out(attention.transpose(1, 2).reshape(1, 6, 16))
        normed = self.second_norm(x)
        return x + self.down(nn.functional.silu(self.gate(normed)) * self.up(normed))


def _dynamic_batch() -> Model:
    batch = torch.export.Dim("batch", min=1, max=16)
    module = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    )
    return Model(module, (_image(8, batch=2),), ({0: batch},), (_image(8, batch=7),))


def _image(size: int, channels: int = 3, batch: int = 1) -> torch.Tensor:
    return torch.randn(batch, channels, size, size)


def _resnet() -> Model:
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(
        embedding_size=16,
        hidden_sizes=[16, 32, 64, 128],
        depths=[2, 2, 2, 2],
        layer_type="basic",
        num_labels=10,
    )
    return Model(FirstOutput(ResNetForImageClassification(config)), (_image(64),))


def _mobilenet_v2() -> Model:
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    config = MobileNetV2Config(image_size=96, depth_multiplier=0.5, num_labels=10)
    return Model(FirstOutput(MobileNetV2ForImageClassification(config)), (_image(96),))


def _torchvision(name: str, size: int, **settings: Any) -> Model:
    from torchvision import models

    return Model(getattr(models, name)(weights=None, num_classes=10, **settings), (_image(size),))


def _vit() -> Model:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        image_size=32,
        patch_size=8,
        num_labels=10,
    )
    return Model(FirstOutput(ViTForImageClassification(config)), (_image(32),))


def _minilm() -> Model:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=100,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        max_position_embeddings=32,
    )
    tokens = torch.randint(0, 100, (1, 12))
    return Model(
        FirstOutput(BertModel(config, add_pooling_layer=False)),
        (tokens, torch.ones(1, 12, dtype=torch.int64)),
    )


def _convnext() -> Model:
    from transformers import ConvNextConfig, ConvNextForImageClassification

    config = ConvNextConfig(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], num_labels=10)
    return Model(FirstOutput(ConvNextForImageClassification(config)), (_image(64),))


MODELS: dict[str, Callable[[], Model]] = {
    "linear": lambda: Model(nn.Linear(4, 3), (torch.randn(2, 4),)),
    "two linears": lambda: Model(TwoLinears(), (torch.randn(2, 16),)),
    "sum": lambda: Model(Sum(), (torch.randn(2, 4), torch.randn(2, 4))),
    "convolution net": lambda: Model(ConvolutionNet(), (_image(8),)),
    "separable": lambda: Model(Separable(), (_image(16),)),
    "activations": lambda: Model(Activations(), (_image(6, channels=4),)),
    "prelu": lambda: Model(nn.Sequential(nn.Conv2d(3, 6, 3), nn.PReLU(6)), (_image(8),)),
    "transposed convolutions": lambda: Model(
        nn.Sequential(nn.ConvTranspose2d(4, 6, 2, stride=2), nn.ReLU(), nn.ConvTranspose2d(6, 3, 4, 2, 1)),
        (_image(5, channels=4),),
    ),
    "group norm": lambda: Model(
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv2d(8, 4, 1)), (_image(8),)
    ),
    "attention": lambda: Model(Attention(), (torch.randn(1, 6, 16),)),
    "decoder": lambda: Model(RotaryDecoder(), (torch.randn(1, 6, 16),)),
    "lstm": lambda: Model(Recurrent(nn.LSTM), (torch.randn(2, 5, 8),)),
    "gru": lambda: Model(Recurrent(nn.GRU), (torch.randn(2, 5, 8),)),
    "dynamic batch": _dynamic_batch,
    "unet": lambda: Model(SmallUnet(), (_image(16),)),
    "vit": _vit,
    "minilm": _minilm,
    "convnext": _convnext,
    "resnet18": _resnet,
    "mobilenet v2": _mobilenet_v2,
    "mobilenet v3": lambda: _torchvision("mobilenet_v3_small", 64, width_mult=0.5),
    "squeezenet": lambda: _torchvision("squeezenet1_1", 64),
    "shufflenet": lambda: _torchvision("shufflenet_v2_x0_5", 64),
}


def model_named(name: str) -> Model:
    """The model in evaluation mode; its weights and inputs are the same in every process."""
    torch.manual_seed(0)
    model = MODELS[name]()
    model.module.eval()
    return model
