"""A small model whose steps are fused, whose operators have several results, and that names its modules."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn


class Recorded(nn.Module):
    """Two linear layers, a split and a top-k."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.second = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.relu(self.first(x))
        a, b = torch.split(y, 4, dim=1)
        return self.second(y) + a, torch.topk(b, 2)[0]


def captured() -> tuple[torch.export.ExportedProgram, Tensor]:
    """The model as captured, and an input."""
    torch.manual_seed(0)
    x = torch.randn(2, 4)
    return torch.export.export(Recorded().eval(), (x,)), x


def as_array(x: Tensor) -> npt.NDArray[np.float32]:
    """The input for a runtime without torch."""
    return x.numpy()
