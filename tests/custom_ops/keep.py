"""Writes the exported program that a test of `pteron-runtime` runs: `python -m tests.custom_ops.keep`."""

from __future__ import annotations

from pathlib import Path

import torch

import pteron

FILE = Path(__file__).resolve().parents[2] / "rust/pteron-runtime/tests/data/custom_operator.pte"


@torch.library.custom_op("pteron_example::add_scaled", mutates_args=())
def add_scaled(x: torch.Tensor, scale: float) -> torch.Tensor:
    """x + scale * x."""
    return x + scale * x


@add_scaled.register_fake
def _(x: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.empty_like(x)


class Model(torch.nn.Module):
    """`add_scaled` behind a linear layer of known weights."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(2, 1)
        torch.nn.init.constant_(self.linear.weight, 2.0)
        torch.nn.init.constant_(self.linear.bias, 1.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: float32[rows, 2]."""
        return add_scaled(self.linear(x), 0.5)


def exported() -> bytes:
    """The file; rows vary from 1 to 8."""
    rows = torch.export.Dim("rows", min=1, max=8)
    model = Model().eval()
    made = pteron.export(model, (torch.ones(2, 2),), dynamic_shapes={"x": {0: rows}}, report=False)
    return made.buffer


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_bytes(exported())
