"""Models whose lowering is timed: random weights, real shapes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

_WIDTH = 1024


def linears(layers: int) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """`layers` times `Linear(1024, 1024)`, one behind the other."""
    return nn.Sequential(*[nn.Linear(_WIDTH, _WIDTH) for _ in range(layers)]), (torch.randn(1, _WIDTH),)


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolution beside a shortcut, each with its batch norm."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.reduce = nn.Conv2d(inputs, width, 1, bias=False)
        self.reduce_norm = nn.BatchNorm2d(width)
        self.spatial = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.spatial_norm = nn.BatchNorm2d(width)
        self.expand = nn.Conv2d(width, outputs, 1, bias=False)
        self.expand_norm = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.reduce_norm(self.reduce(x)))
        y = self.relu(self.spatial_norm(self.spatial(y)))
        return self.relu(self.expand_norm(self.expand(y)) + self.shortcut(x))


def resnet50() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """ResNet-50: 53 convolutions, 25.6 million parameters, one image of 224 x 224."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2, padding=1),
    ]
    inputs = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks):
            layers.append(Bottleneck(inputs, width, 2 if stage and block == 0 else 1))
            inputs = 4 * width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000)]
    return nn.Sequential(*layers), (torch.randn(1, 3, 224, 224),)


class Pooled(nn.Module):
    """The pooled output of an encoder, so that the program returns one tensor."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        pooled: Tensor = self.encoder(input_ids=tokens, attention_mask=mask).pooler_output
        return pooled


def bert(layers: int = 12) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """BERT base: `layers` layers of width 768, 12 heads, 128 tokens."""
    from transformers import BertConfig, BertModel

    model = Pooled(BertModel(BertConfig(num_hidden_layers=layers)))
    return model, (torch.randint(0, 1000, (1, 128)), torch.ones(1, 128, dtype=torch.int64))


MODELS: dict[str, Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]] = {
    "linear40": lambda: linears(40),
    "resnet50": resnet50,
    "bert12": bert,
    "linear10": lambda: linears(10),
    "linear160": lambda: linears(160),
}
