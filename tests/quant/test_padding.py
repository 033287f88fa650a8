"""Pads become the padding of convolutions before a model is quantised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("torchao", reason="needs torchao")

from pteron.quant.fold_padding import fold_padding

pad = nn.functional.pad


class Padded(nn.Module):
    """A convolution behind `before`."""

    def __init__(self, layer: nn.Module, before: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer = layer
        self.before = before

    def forward(self, x: Tensor) -> Any:
        return self.layer(self.before(x))


def folded(model: nn.Module, x: Tensor) -> tuple[torch.fx.GraphModule, int]:
    """The captured graph with folded pads, which gives the same result, and how many pads are left."""
    module = torch.export.export(model.eval(), (x,)).module()
    assert isinstance(module, torch.fx.GraphModule)
    expected = module(x)
    fold_padding(module.graph)
    module.graph.lint()
    module.recompile()
    torch.testing.assert_close(module(x), expected)
    pads = {torch.ops.aten.pad.default, torch.ops.aten.constant_pad_nd.default}
    return module, sum(node.target in pads for node in module.graph.nodes)


def conv(*args: Any, **kwargs: Any) -> nn.Module:
    torch.manual_seed(0)
    return nn.Conv2d(2, 4, *args, **kwargs)


@pytest.mark.parametrize(
    ("layer", "pads"),
    [
        (conv(3), (1, 1, 1, 1)),
        (conv(3, bias=False), (2, 2, 0, 0)),
        (conv(3, stride=2, padding=(0, 1)), (1, 1, 1, 1)),
        (conv(3, dilation=2, padding=1), (1, 1)),
        (conv(1), (0, 0, 0, 0)),
        (conv(3, groups=2), (1, 1, 2, 2, 0, 0)),
    ],
)
def test_equal_margins_are_added(layer: nn.Module, pads: tuple[int, ...]) -> None:
    assert folded(Padded(layer, lambda x: pad(x, pads)), torch.randn(2, 2, 9, 8))[1] == 0


def test_a_line_is_padded_too() -> None:
    model = Padded(nn.Conv1d(2, 4, 3, padding=1), lambda x: pad(pad(x, (2, 2)), (0, 0)))
    assert folded(model, torch.randn(1, 2, 9))[1] == 0


@pytest.mark.parametrize(
    ("layer", "before"),
    [
        (conv(3), lambda x: pad(x, (0, 1, 0, 1))),
        (conv(3), lambda x: pad(x, (-1, -1))),
        (conv(3), lambda x: pad(x, (1, 1), value=1.0)),
        (conv(3), lambda x: pad(x, (1, 1, 1, 1), mode="reflect")),
        (conv(3), lambda x: pad(x[:, :1], (0, 0, 0, 0, 0, 1))),
        (conv(3, padding="same"), lambda x: pad(x, (1, 1))),
        (nn.MaxPool2d(2), lambda x: pad(x, (1, 1))),
        (nn.ConvTranspose2d(2, 4, 3), lambda x: pad(x, (1, 1))),
    ],
)
def test_other_pads_stay(layer: nn.Module, before: Callable[[Tensor], Tensor]) -> None:
    assert folded(Padded(layer, before), torch.randn(2, 2, 9, 8))[1] == 1


def test_a_pad_that_others_read_stays() -> None:
    class Read(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = conv(3)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y = pad(x, (1, 1, 1, 1))
            return self.layer(y), torch.relu(y)

    assert folded(Read(), torch.randn(1, 2, 8, 8))[1] == 1
    again = Padded(conv(1), lambda x: torch.relu(pad(x, (0, 0))))
    assert folded(again, torch.randn(1, 2, 8, 8))[1] == 0
