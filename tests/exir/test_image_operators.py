"""Image operators that PyTorch does not decompose to core ATen and that stay whole up to the file."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

import pteron
from pteron.exir import ExecutorchBackendConfig, to_edge
from tests.exir.small_models import random


class Applied(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


@pytest.mark.parametrize(
    ("operator", "function", "shape"),
    [
        ("adaptive_max_pool2d", lambda x: functional.adaptive_max_pool2d(x, (4, 3)), (1, 3, 9, 8)),
        ("adaptive_max_pool3d", lambda x: functional.adaptive_max_pool3d(x, (3, 4, 2)), (1, 2, 4, 7, 5)),
        (
            "_upsample_bicubic2d_aa",
            lambda x: functional.interpolate(x, size=(5, 4), mode="bicubic", antialias=True),
            (1, 3, 9, 8),
        ),
    ],
    ids=["adaptive_max_pool2d", "adaptive_max_pool3d", "bicubic"],
)
def test_whole_operators_run(
    operator: str, function: Callable[[torch.Tensor], torch.Tensor], shape: tuple[int, ...]
) -> None:
    x = random(*shape)
    manager = to_edge(torch.export.export(Applied(function), (x,)))
    program = pteron.load(manager.to_executorch(ExecutorchBackendConfig(kernels="pteron")).buffer)
    assert program.operators() == (f"aten::{operator}.out",)
    (got,) = program.load_method("forward").execute([x])
    torch.testing.assert_close(torch.as_tensor(got), function(x), rtol=3e-6, atol=3e-6)
