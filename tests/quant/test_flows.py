"""Every flow that quantises: exported, run here, compared with the converted model in eager PyTorch; run by
ExecuTorch's runtime, whose own files of the flows run here.
"""

from __future__ import annotations

import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

import pteron
from pteron.exir import to_edge
from tests.quant.flows import FLOWS, PEER_FLOWS

pytestmark = [pytest.mark.peer, pytest.mark.slow]
pytest.importorskip("executorch.runtime", reason="needs the executorch wheel")

#: Flows with an operator that ExecuTorch has no kernel of: our files of them run here alone.
HERE_ALONE = {"int8 activations, int8 weights"}
#: Flows that ExecuTorch makes a file of without a delegate; the others it refuses.
THEIRS = {
    "static per tensor",
    "static per channel",
    "static per channel, torchao's quantizer",
    "dynamic",
    "dynamic per tensor",
    "int8 weights",
    "8-bit table",
    "4-bit table, groups",
    "2-bit table, groups",
}


@dataclass
class Flow:
    """A flow's example input, and what eager PyTorch makes of it."""

    inputs: tuple[Tensor, ...]
    expected: Tensor


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the files of all flows are."""
    return tmp_path_factory.mktemp("flows")


@pytest.fixture(scope="module")
def flows(folder: Path) -> dict[str, Flow]:
    """Every flow, converted, exported and run in eager PyTorch."""
    made = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, build in FLOWS.items():
            model, inputs = build()
            with torch.no_grad():
                made[name] = Flow(inputs, model(*inputs))
            program = to_edge(torch.export.export(model, inputs)).to_executorch()
            (folder / f"{name}.pte").write_bytes(program.buffer)
            torch.save(list(inputs), folder / f"{name}.inputs")
    return made


@pytest.fixture(scope="module")
def beside(folder: Path, flows: dict[str, Flow]) -> Path:
    """The folder with what ExecuTorch made of every flow: it starts once."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.quant.peer", str(folder)]
    subprocess.run(command, check=True, capture_output=True, cwd=root)
    return folder


def assert_same(result: Tensor, flow: Flow, name: str) -> None:
    """Within the order of sums; but where activations are quantised by their own range, one of them that
    lies on a border between two steps may change its whole row.
    """
    error = (result - flow.expected).abs() / flow.expected.abs().max()
    if "dynamic" in name or "activations" in name:
        assert float(error.median()) <= 2e-6
        assert float(error.max()) <= 5e-3
    else:
        assert float(error.max()) <= 2e-6


def run_here(path: Path, flow: Flow) -> Tensor:
    """The result of a file's only method."""
    (result,) = pteron.load(path).load_method("forward").execute(list(flow.inputs))
    return torch.as_tensor(result)


@pytest.mark.parametrize("name", FLOWS)
def test_a_flow_runs_here(name: str, folder: Path, flows: dict[str, Flow]) -> None:
    assert_same(run_here(folder / f"{name}.pte", flows[name]), flows[name], name)


@pytest.mark.parametrize("name", FLOWS)
def test_our_file_of_a_flow_runs_in_executorch(name: str, beside: Path, flows: dict[str, Flow]) -> None:
    result = beside / f"{name}.ours"
    assert result.exists() == (name not in HERE_ALONE), name
    if result.exists():
        assert_same(torch.load(result), flows[name], name)


@pytest.mark.parametrize("name", PEER_FLOWS)
def test_executorchs_file_of_a_flow_runs_here(name: str, beside: Path, flows: dict[str, Flow]) -> None:
    file = beside / f"{name}.theirs.pte"
    assert file.exists() == (name in THEIRS), name
    if file.exists():
        theirs = torch.load(beside / f"{name}.theirs")
        assert_same(theirs, flows[name], name)
        assert_same(run_here(file, flows[name]), flows[name], name)
