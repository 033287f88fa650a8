"""Models that PyTorch's quantisation flow made, here and in ExecuTorch."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pteron
from pteron.exir import EdgeProgramManager, to_edge

pytestmark = pytest.mark.peer
pytest.importorskip("executorch.runtime", reason="needs the executorch wheel")

# In a process of its own: the quantised kernels stay in ExecuTorch's registry once they are imported.
PEER = """
import sys, torch
import executorch.kernels.quantized
from executorch.runtime import Runtime
for folder in sys.argv[1:]:
    method = Runtime.get().load_program(folder + "/model.pte").load_method("forward")
    torch.save(method.execute([torch.load(folder + "/input.pt")])[0], folder + "/result.pt")
"""


class Network(nn.Module):
    """A convolution and a linear."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3, padding=1)
        self.linear = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(torch.relu(self.convolution(x)).mean(dim=(2, 3)))


class Table(nn.Module):
    """Rows of a weight that is quantised as they are read."""

    def __init__(self) -> None:
        super().__init__()
        weight = torch.randn(11, 6)
        self.register_buffer("scales", weight.abs().amax(1) / 127)
        self.register_buffer("zeros", torch.zeros(11, dtype=torch.int64))
        rows = torch.ops.quantized_decomposed.quantize_per_channel
        self.register_buffer("rows", rows(weight, self.scales, self.zeros, 0, -127, 127, torch.int8))

    def forward(self, index: Tensor) -> Tensor:
        dequantize = torch.ops.quantized_decomposed.dequantize_per_channel
        table = dequantize(self.rows, self.scales, self.zeros, 0, -127, 127, torch.int8)
        return torch.embedding(table, index)


class Tokens(nn.Module):
    """Activations quantised row by row."""

    def forward(self, x: Tensor) -> Tensor:
        library = torch.ops.quantized_decomposed
        scales, zeros = library.choose_qparams_per_token_asymmetric(x, torch.int8)
        q = library.quantize_per_token(x, scales, zeros, -128, 127, torch.int8)
        return library.dequantize_per_token(q, scales, zeros, -128, 127, torch.int8, torch.float32)


def quantized(**settings: Any) -> Callable[[], tuple[nn.Module, Tensor]]:
    """The network as the quantisation flow leaves it."""

    def build() -> tuple[nn.Module, Tensor]:
        from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
            XNNPACKQuantizer,
            get_symmetric_quantization_config,
        )
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

        x = torch.randn(2, 3, 8, 8)
        quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(**settings))
        prepared = prepare_pt2e(torch.export.export(Network().eval(), (x,)).module(), quantizer)
        prepared(x)
        return convert_pt2e(prepared), x

    return build


MODELS: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "per tensor": quantized(is_per_channel=False),
    "per channel": quantized(is_per_channel=True),
    "dynamic": quantized(is_per_channel=True, is_dynamic=True),
    "embedding": lambda: (Table(), torch.tensor([[0, 10, 3], [4, 4, 1]])),
    "per token": lambda: (Tokens(), torch.randn(4, 9)),
}


@dataclass
class Prepared:
    """A model with its input, and its program in a folder of its own, with the peer's result beside it."""

    model: nn.Module
    x: Tensor
    manager: EdgeProgramManager
    folder: Path


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Prepared]:
    """All models: the peer starts once, which takes longer than what it runs."""
    made = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, build in MODELS.items():
            torch.manual_seed(0)
            model, x = build()
            manager = to_edge(torch.export.export(model, (x,)))
            made[name] = Prepared(model, x, manager, tmp_path_factory.mktemp("quantized"))
            (made[name].folder / "model.pte").write_bytes(manager.to_executorch().buffer)
            torch.save(x, made[name].folder / "input.pt")
    folders = [str(one.folder) for one in made.values()]
    subprocess.run([sys.executable, "-c", PEER, *folders], check=True, capture_output=True)
    return made


@pytest.mark.parametrize("name", MODELS)
def test_quantised_models_run_here_and_there(name: str, prepared: dict[str, Prepared]) -> None:
    one = prepared[name]
    assert any("quantized_decomposed" in str(n.target) for n in one.manager.exported_program().graph.nodes)
    method = pteron.load((one.folder / "model.pte").read_bytes()).load_method("forward")
    (ours,) = method.execute([one.x])
    with torch.no_grad():
        expected = one.model(one.x)
    for others in (expected, torch.load(one.folder / "result.pt")):
        most = 2e-6 * float(others.abs().max())
        torch.testing.assert_close(torch.as_tensor(ours), others, rtol=0, atol=most)
