"""A file that ExecuTorch's own tools wrote, for a kernel linked into its runtime, runs with one in Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pteron
from tests.support.own_interpreter import run_alone

pytest.importorskip("executorch", reason="the file is written by ExecuTorch")

# Nothing of ours is imported there. ExecuTorch asks for an out variant, which our exporter does not need.
WRITE = """
import sys, warnings
warnings.simplefilter("ignore")
import torch
from executorch.exir import EdgeCompileConfig, to_edge

library = torch.library.Library("pteron_foreign", "DEF")
library.define("clip_rows(Tensor x, float most, int[]? keep=None) -> Tensor")
library.define("clip_rows.out(Tensor x, float most, int[]? keep=None, *, Tensor(a!) out) -> Tensor(a!)")

def clip_rows(x, most, keep=None):
    return x * (most / x.norm(dim=-1, keepdim=True).clamp(min=1e-12)).clamp(max=1)

def clip_rows_out(x, most, keep=None, *, out):
    return out.copy_(clip_rows(x, most, keep))

library.impl("clip_rows", clip_rows, "CompositeExplicitAutograd")
library.impl("clip_rows.out", clip_rows_out, "CompositeExplicitAutograd")

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 4)

    def forward(self, x):
        return torch.ops.pteron_foreign.clip_rows(self.linear(x), 0.5, [1, 2]).relu()

torch.manual_seed(0)
torch.set_num_threads(1)
model, rows = Model().eval(), torch.export.Dim("rows", min=1, max=16)
captured = torch.export.export(model, (torch.randn(3, 8),), dynamic_shapes={"x": {0: rows}})
# ExecuTorch's verifier takes no operators but its own.
program = to_edge(captured, compile_config=EdgeCompileConfig(_check_ir_validity=False)).to_executorch()
with open(sys.argv[1] + "/model.pte", "wb") as file:
    file.write(program.buffer)
for count in (1, 3, 16):
    x = torch.randn(count, 8)
    torch.save((x.numpy(), model(x).detach().numpy()), f"{sys.argv[1]}/{count}.pt")
"""


def test_a_kernel_in_python_takes_the_place_of_one_linked_into_executorch(tmp_path: Path) -> None:
    import torch

    run_alone(WRITE, tmp_path, timeout=600)
    runtime = pteron.Runtime()
    program = pteron.load(tmp_path / "model.pte", runtime=runtime)
    assert "pteron_foreign::clip_rows.out" in program.operators("forward")
    with pytest.raises(pteron.MissingOperatorError, match=r"register_kernel\('pteron_foreign::clip_rows', "):
        program.load_method()
    seen = []

    def kernel(x: np.ndarray, most: float, keep: list[int]) -> np.ndarray:
        seen.append((most, keep))
        norms = np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)
        return x * np.minimum(most / norms, 1).astype(x.dtype)

    pteron.register_kernel("pteron_foreign::clip_rows", kernel, runtime=runtime)
    for count in (1, 3, 16):
        x, expected = torch.load(tmp_path / f"{count}.pt", weights_only=False)
        np.testing.assert_allclose(program.run("forward", x), expected, rtol=1e-5, atol=1e-6)
    assert seen == [(0.5, [1, 2])] * 3
