"""Small networks of twelve architectures, trained here on handwritten digits.

The digits are those that ship with scikit-learn: 1,797 images of 8 x 8 pixels, enlarged to 32 x 32. Two
thirds train, one third is the task: the share of images that a network names right.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torchvision
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

CLASSES = 10
SIZE = 32
EPOCHS = 12
BATCH = 64


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images and classes to train with, and those of the task: `[n, 3, 32, 32]` around zero, int64."""
    pixels, classes = load_digits(return_X_y=True)
    images = torch.from_numpy(pixels).float().reshape(-1, 1, 8, 8) / 8 - 1
    images = functional.interpolate(images, (SIZE, SIZE), mode="bilinear").expand(-1, 3, -1, -1)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    images, labels = images[order].contiguous(), torch.from_numpy(classes)[order]
    first = len(images) * 2 // 3
    return images[:first], labels[:first], images[first:], labels[first:]


class PlainNetwork(nn.Sequential):
    """Convolutions and pooling alone."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 32, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 8 * 8, CLASSES),
        )


class Rows(nn.Module):
    """Reads an image as a sequence of rows; the last state names the class."""

    def __init__(self, cell: type[nn.LSTM | nn.GRU]) -> None:
        super().__init__()
        self.cell = cell(3 * SIZE, 48, batch_first=True)
        self.head = nn.Linear(48, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.permute(0, 2, 1, 3).flatten(2)
        states, _ = self.cell(rows)
        return self.head(states[:, -1])


class Mixer(nn.Module):
    """MLP-Mixer (Tolstikhin and others, 2021): products over patches and over channels in turn."""

    def __init__(self, width: int = 48, depth: int = 3) -> None:
        super().__init__()
        patches = (SIZE // 8) ** 2
        self.stem = nn.Conv2d(3, width, 8, stride=8)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * depth))
        self.over_patches = nn.ModuleList(_mlp(patches, 2 * patches) for _ in range(depth))
        self.over_channels = nn.ModuleList(_mlp(width, 2 * width) for _ in range(depth))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).flatten(2).transpose(1, 2)
        for i, (patches, channels) in enumerate(zip(self.over_patches, self.over_channels, strict=True)):
            x = x + patches(self.norms[2 * i](x).transpose(1, 2)).transpose(1, 2)
            x = x + channels(self.norms[2 * i + 1](x))
        return self.head(x.mean(1))


def _mlp(width: int, inner: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))


class Encoder(nn.Module):
    """A transformer's encoder over the rows of an image, attention written by PyTorch's own layer."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.stem = nn.Linear(3 * SIZE, width)
        self.places = nn.Parameter(torch.randn(1, SIZE, width) * 0.1)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.permute(0, 2, 1, 3).flatten(2)
        return self.head(self.layers(self.stem(rows) + self.places).mean(1))


def _resnet() -> nn.Module:
    from torchvision.models.resnet import BasicBlock, ResNet

    return ResNet(BasicBlock, [1, 1, 1, 1], num_classes=CLASSES)


def _densenet() -> nn.Module:
    return torchvision.models.DenseNet(8, (3, 3, 3), 16, num_classes=CLASSES)


def _convnext() -> nn.Module:
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    blocks = [CNBlockConfig(24, 48, 1), CNBlockConfig(48, 96, 1), CNBlockConfig(96, None, 1)]
    return ConvNeXt(blocks, layer_scale=1.0, num_classes=CLASSES)


def _vit() -> nn.Module:
    return torchvision.models.VisionTransformer(SIZE, 8, 3, 4, 64, 128, num_classes=CLASSES)


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "plain CNN": PlainNetwork,
    "ResNet": _resnet,
    "MobileNetV2": partial(torchvision.models.mobilenet_v2, num_classes=CLASSES, width_mult=0.5),
    "MobileNetV3": partial(torchvision.models.mobilenet_v3_small, num_classes=CLASSES, width_mult=0.5),
    "ShuffleNetV2": partial(torchvision.models.shufflenet_v2_x0_5, num_classes=CLASSES),
    "DenseNet": _densenet,
    "ConvNeXt": _convnext,
    "ViT": _vit,
    "MLP-Mixer": Mixer,
    "transformer encoder": Encoder,
    "LSTM": partial(Rows, nn.LSTM),
    "GRU": partial(Rows, nn.GRU),
}


def trained(name: str, folder: Path) -> nn.Module:
    """The network, trained, in evaluation mode; weights are kept in `folder` until this file changes."""
    torch.manual_seed(0)
    network = NETWORKS[name]()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 0.1  # MobileNetV3's 0.01 takes longer than this training to see the images
    stamp = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    kept = folder / f"{name.replace(' ', '_')}_{stamp}.pt"
    if kept.exists():
        network.load_state_dict(torch.load(kept))
        return network.eval()
    images, labels, *_ = digits()
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3, weight_decay=0.01)
    steps = EPOCHS * (len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    network.train()
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(images)).split(BATCH)[: len(images) // BATCH]:
            optimizer.zero_grad()
            functional.cross_entropy(network(images[batch]), labels[batch]).backward()
            optimizer.step()
            schedule.step()
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(network.state_dict(), kept)
    return network.eval()
