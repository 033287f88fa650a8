"""How a program gets into a file: without copies, the same bytes every time, with or without debug
information.
"""

from __future__ import annotations

import io
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import pteron
from pteron.errors import ExportError
from pteron.exir import ExecutorchBackendConfig, ExecutorchProgramManager, to_edge
from pteron.exir.serialize.file_layout import FileLayout


class _Affine(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(16.0).view(4, 4))
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        return x @ self.weight + self.calls


def _manager() -> tuple[_Affine, ExecutorchProgramManager]:
    model = _Affine()
    return model, to_edge(torch.export.export(model, (torch.ones(1, 4),))).to_executorch()


def test_the_stream_and_the_buffer_are_the_same_bytes(tmp_path: Path) -> None:
    _, manager = _manager()
    file = io.BytesIO()
    manager.write_to_file(file)
    manager.save(tmp_path / "model.pte")
    assert file.getvalue() == (tmp_path / "model.pte").read_bytes() == manager.buffer
    assert pteron.load(tmp_path / "model.pte").load_method()(np.ones((1, 4), np.float32)).tolist() == [
        [25.0, 29.0, 33.0, 37.0]
    ]


class _SlowFile(io.RawIOBase):
    """Takes at most seven bytes at a time."""

    def __init__(self) -> None:
        self.content = bytearray()

    def write(self, data: Any) -> int:
        self.content += data[:7]
        return min(7, len(data))


def test_files_that_take_less_than_they_are_given() -> None:
    _, manager = _manager()
    slow = _SlowFile()
    manager.write_to_file(slow)  # type: ignore[arg-type]
    assert bytes(slow.content) == manager.buffer


def test_a_layout_pads_between_and_behind_its_pieces() -> None:
    layout = FileLayout(b"head", [(6, memoryview(b"ab")), (8, memoryview(b"c"))], 12)
    assert layout.to_bytes() == b"head\0\0abc\0\0\0"


def test_weights_that_changed_meanwhile_are_noticed() -> None:
    model, manager = _manager()
    with torch.no_grad():
        model(torch.ones(1, 4))  # changes the buffer, whose initial value was taken before
        model.weight.mul_(2)
    with pytest.raises(ExportError, match=r"1 weights .* changed in place after to_executorch: 'weight'"):
        _ = manager.buffer


def test_a_buffer_that_was_made_stays_as_it_is() -> None:
    model, manager = _manager()
    before = manager.buffer
    with torch.no_grad():
        model.weight.mul_(2)
    file = io.BytesIO()
    manager.write_to_file(file)
    assert file.getvalue() == before == manager.buffer


def test_debug_information_can_be_left_out(tmp_path: Path) -> None:
    _, manager = _manager()
    manager.save(tmp_path / "full.pte")
    manager.save(tmp_path / "small.pte", strip=True)
    full, small = (tmp_path / "full.pte").read_bytes(), (tmp_path / "small.pte").read_bytes()
    assert small == pteron.strip(full) == pteron.strip(bytearray(small))
    assert len(small) < len(full)
    assert Path(__file__).name.encode() in full
    assert Path(__file__).name.encode() not in small
    stripped = pteron.load(small)
    assert set(stripped.named_data) == {"pteron.interface"}
    assert stripped.inputs()[0].name == "x"
    assert stripped.load_method()(np.ones((1, 4), np.float32)).tolist() == [[25.0, 29.0, 33.0, 37.0]]
    with pytest.raises(pteron.ProgramError):
        pteron.strip(full[:100])


@pytest.mark.peer
def test_executorch_runs_a_stripped_program() -> None:
    runtime = pytest.importorskip("executorch.runtime", reason="needs the executorch wheel")
    _, manager = _manager()
    method = runtime.Runtime.get().load_program(pteron.strip(manager.buffer)).load_method("forward")
    assert method.execute([torch.ones(1, 4)])[0].tolist() == [[25.0, 29.0, 33.0, 37.0]]


_EXPORT = """
import hashlib, sys
import torch
from torch import nn
from pteron.backends.demo import AddMulPartitionerDemo
from pteron.exir import ExecutorchBackendConfig, to_edge

torch.manual_seed(0)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
        self.register_buffer("cache", torch.zeros(8))
        self.register_buffer("steps", torch.zeros(1))

    def forward(self, x, y):
        for layer in self.layers:
            x = torch.relu(layer(x))
        self.cache.copy_(x[0])
        self.steps.add_(1)
        x = x @ y + x
        return {"b": x, "a": torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)), "n": self.steps * 2}

rows = torch.export.Dim("rows", min=2, max=32)
shapes = {"x": {0: rows}, "y": None}
model = Model().eval()
methods = {
    name: torch.export.export(model, (torch.randn(3, 8), torch.randn(8, 8)), dynamic_shapes=shapes)
    for name in ("second", "first")
}
edge = to_edge(methods, constant_methods={"vocabulary": 9, "names": ["b", "a"]})
edge = edge.to_backend({"first": AddMulPartitionerDemo()})
manager = edge.to_executorch(
    ExecutorchBackendConfig(external_constants=lambda node: f"file{len(node.name) % 3}")
)
parts = [manager.buffer, *(name.encode() + data for name, data in manager._tensor_data.items())]
print([hashlib.sha256(part).hexdigest() for part in parts])
"""


@pytest.mark.slow
def test_another_process_makes_the_same_bytes() -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _EXPORT],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        for seed in ("1", "4711")
    ]
    runs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert runs[0] == runs[1]
    assert runs[0].count("'") >= 6


_SAVE = """
import resource, sys
import torch
from torch import nn
from pteron.exir import ExecutorchBackendConfig, to_edge

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ParameterList(torch.full((1024, 16384), float(i)) for i in range(4))

    def forward(self, x):
        for table in self.tables:
            x = x + table[0, 0]
        return x

plain = ExecutorchBackendConfig(optimize=False)
manager = to_edge(torch.export.export(Model(), (torch.ones(1),))).to_executorch(plain)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
manager.save(sys.argv[1])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_saving_takes_no_copy_of_the_weights(tmp_path: Path) -> None:
    path = tmp_path / "model.pte"
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _SAVE, str(path)], capture_output=True, text=True, check=True
    )
    assert path.stat().st_size > 256 << 20
    assert int(result.stdout) < 64 << 10, "kilobytes on top of the model"


@pytest.mark.skipif(
    "PTERON_LARGE_FILES" not in os.environ, reason="writes 5 GB; set PTERON_LARGE_FILES=1 to run it"
)
def test_programs_beyond_four_gigabytes(tmp_path: Path) -> None:
    class Tables(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Parameter(torch.zeros(5 << 27))
            self.last = nn.Parameter(torch.zeros(5 << 27))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.first[-1:] + self.last[-1:]

    model = Tables()
    with torch.no_grad():
        model.first[-1], model.last[-1] = 1, 2
    path = tmp_path / "large.pte"
    plain = ExecutorchBackendConfig(optimize=False)
    to_edge(torch.export.export(model, (torch.ones(1),))).to_executorch(plain).save(path)
    assert path.stat().st_size > 5 << 30
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert pteron.load(path).load_method()(np.ones(1, np.float32)).tolist() == [4.0]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10
