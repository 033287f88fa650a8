"""`emit_stacktrace` keeps the Python frames of every instruction."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import pteron
from pteron.exir import EdgeProgramManager, ExecutorchBackendConfig, to_edge


class _Inner(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x)


class _Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = _Inner()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cos(self.inner(x))


@pytest.fixture(scope="module")
def edge() -> EdgeProgramManager:
    return to_edge(torch.export.export(_Model(), (torch.randn(3),)))


def test_frames_lead_from_the_model_to_the_call(edge: EdgeProgramManager) -> None:
    manager = edge.to_executorch(ExecutorchBackendConfig(emit_stacktrace=True))
    chain = manager.executorch_program.execution_plan[0].chains[0]
    assert chain.stacktrace is not None
    assert len(chain.stacktrace) == len(chain.instructions) == 2
    sin, cos = chain.stacktrace
    assert [frame.context for frame in sin.items] == [
        "return torch.cos(self.inner(x))",
        "return torch.sin(x)",
    ]
    assert [frame.context for frame in cos.items] == ["return torch.cos(self.inner(x))"]
    assert {frame.name for frame in sin.items} == {"forward"}
    for frame in sin.items:
        assert frame.filename.endswith("test_stacktrace.py")
        assert not Path(frame.filename).is_absolute()
        assert Path(__file__).read_text().splitlines()[frame.lineno - 1].strip() == frame.context


def test_frames_are_in_the_file(edge: EdgeProgramManager) -> None:
    with_frames = edge.to_executorch(ExecutorchBackendConfig(emit_stacktrace=True)).buffer
    without = edge.to_executorch().buffer
    # The context stands nowhere else in a program.
    assert b"return torch.sin(x)" in with_frames
    assert b"return torch.sin(x)" not in without
    x = torch.randn(3)
    assert torch.equal(pteron.load(with_frames).run("forward", x), pteron.load(without).run("forward", x))


@pytest.mark.peer
def test_the_peer_reads_the_frames(edge: EdgeProgramManager) -> None:
    reader = pytest.importorskip("executorch.exir._serialize._program")
    buffer = edge.to_executorch(ExecutorchBackendConfig(emit_stacktrace=True)).buffer
    chain = reader.deserialize_pte_binary(buffer).program.execution_plan[0].chains[0]
    assert [frames.items[-1].context for frames in chain.stacktrace] == [
        "return torch.sin(x)",
        "return torch.cos(self.inner(x))",
    ]
