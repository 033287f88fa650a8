"""Models whose listings are reviewed beside those of `small_models`: what real models are built of."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import nn
from torch.export import Dim, ExportedProgram, export
from torch.nn import functional

from tests.exir.small_models import Function, random


class Attention(nn.Module):
    """Two heads over a length that varies."""

    def __init__(self) -> None:
        super().__init__()
        self.projections = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (layer(x).view(1, -1, 2, 4).transpose(1, 2) for layer in self.projections[:3])
        y = functional.scaled_dot_product_attention(q, k, v)
        return self.projections[3](y.transpose(1, 2).reshape(1, -1, 8))


class Cache(nn.Module):
    """Keys of the tokens seen so far, one row per call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(1, 8, 4))

    def forward(self, key: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        self.keys.index_copy_(1, position, key)
        return key @ self.keys.transpose(1, 2)


def _convolution() -> ExportedProgram:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU())
    return export(model.eval(), (random(1, 3, 8, 8),))


def _attention() -> ExportedProgram:
    torch.manual_seed(0)
    length = Dim("length", min=2, max=16)
    return export(Attention().eval(), (random(1, 5, 8),), dynamic_shapes=({1: length},))


def _lstm_cell() -> ExportedProgram:
    torch.manual_seed(0)
    cell = nn.LSTMCell(3, 4)
    return export(cell.eval(), (random(1, 3), (random(1, 4), random(1, 4))))


def _cache() -> ExportedProgram:
    return export(Cache().eval(), (random(1, 1, 4), torch.tensor([2])))


def _branches() -> ExportedProgram:
    def chosen(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
        return torch.cond(flag, lambda x: x.sin() * 2, lambda x: x - 1, (x,))

    return export(Function(chosen), (random(3), torch.tensor(True)))


def _two_methods() -> Mapping[str, ExportedProgram]:
    torch.manual_seed(0)
    model = nn.Linear(4, 3).eval()
    return {"one": export(model, (random(1, 4),)), "many": export(model, (random(5, 4),))}


LISTED: dict[str, Callable[[], ExportedProgram | Mapping[str, ExportedProgram]]] = {
    "attention": _attention,
    "branches": _branches,
    "cache": _cache,
    "convolution_norm_relu": _convolution,
    "lstm_cell": _lstm_cell,
    "two_methods": _two_methods,
}
