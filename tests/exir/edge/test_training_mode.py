"""A model exported without `eval()` is named at export, module by module."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pteron.exir import to_edge

IMAGE = torch.randn(2, 3, 8, 8)


def _text(model: nn.Module, *args: Any) -> str:
    """What `to_edge` warns of; nothing: the empty text."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        to_edge(torch.export.export(model, args))
    (text,) = [str(w.message) for w in caught if "as in training" in str(w.message)] or [""]
    return text


def test_modules_are_named() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.3))
    text = _text(model.train(), IMAGE)
    assert text.startswith("method 'forward' computes as in training: 1 (batch_norm), 2 (dropout); ")
    assert "model.eval()" in text
    assert not _text(model.eval(), IMAGE)


def test_many_modules_are_counted() -> None:
    text = _text(nn.Sequential(*(nn.Dropout(0.1) for _ in range(8))).train(), IMAGE)
    assert "4 (dropout) and 3 more;" in text


class Attention(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.1)


class Branch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        dropped = lambda x: nn.functional.dropout(x, 0.5, training=True)  # noqa: E731
        result: Tensor = torch.cond(x.sum() > 0, dropped, lambda x: x + 1, (x,))
        return result


@pytest.mark.parametrize(("model", "says"), [(Attention(), "the model itself"), (Branch(), "(dropout)")])
def test_functions_are_found(model: nn.Module, says: str) -> None:
    assert says in _text(model.eval(), torch.randn(1, 2, 4, 8))


@pytest.mark.parametrize(
    "model",
    [
        nn.Dropout(0.0),
        nn.BatchNorm2d(3, track_running_stats=False),
        nn.InstanceNorm2d(3),
        nn.LayerNorm(8),
        nn.LSTM(8, 8),
    ],
    ids=lambda model: type(model).__name__,
)
def test_what_training_does_not_change_is_no_warning(model: nn.Module) -> None:
    x = torch.randn(2, 3, 8) if isinstance(model, nn.LSTM) else IMAGE
    assert not _text(model.train(), x)
