"""Functions between two tensors of 8 bits: integers in, a table, integers out."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.export import export

import pteron
from pteron.exir import to_edge
from pteron.quant import quantize


class Block(nn.Module):
    """Two layers and a function; of inputs with three dimensions, whose products are viewed."""

    def __init__(self, function: nn.Module) -> None:
        super().__init__()
        self.first, self.function, self.second = nn.Linear(32, 64), function, nn.Linear(64, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.second(self.function(self.first(x)))
        return result


@pytest.mark.parametrize("function", [nn.GELU(), nn.SiLU()], ids=["gelu", "silu"])
def test_a_function_between_layers_is_looked_up(function: nn.Module) -> None:
    torch.manual_seed(0)
    model, x = Block(function).eval(), torch.randn(2, 5, 32)
    calibration = [(torch.randn(2, 5, 32),) for _ in range(4)]
    quantised = quantize(model, (x,), calibration, "int8", layer_limit=1.0)
    program = to_edge(export(quantised, (x,))).to_executorch().buffer
    loaded = pteron.load(program)
    kernels = loaded.kernels()
    assert sum(".table." in kernel for kernel in kernels) == 1, kernels
    assert sum(kernel.startswith("integer.linear") for kernel in kernels) == 2, kernels
    with torch.no_grad():
        want = quantised(x)
    got = loaded.run("forward", x)
    # A number that lies between two integers may go either way.
    assert float((got - want).abs().max()) <= 0.01 * float(want.abs().max())
    for rule in ("move_quantise", "fuse_chain"):
        runtime = pteron.Runtime(disabled_rules=[rule])
        without = pteron.load(program, runtime=runtime)
        assert not any(".table." in kernel for kernel in without.kernels())
        assert float((without.run("forward", x) - want).abs().max()) <= 0.01 * float(want.abs().max())
