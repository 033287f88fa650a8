"""Planned bytes beside the lower bound."""

from __future__ import annotations

import json

import pytest
import torch

from pteron.exir import ExecutorchBackendConfig, to_edge
from pteron.exir.memory.algorithms import naive
from pteron.exir.memory.memory_planning_pass import MemoryPlanningPass
from tests.exir.small_models import CASES, PORTABLE, edge_of, edge_program_of, random
from tests.models.unet import UNet


def test_the_report_names_the_tensors_at_the_peak_and_their_lines() -> None:
    manager = edge_of(lambda x: x.sin().cos().exp().sum(), random(8, 8)).to_executorch(PORTABLE)
    (memory,) = manager.memory_report().memories
    assert (memory.method, memory.memory_id) == ("forward", 1)
    assert memory.planned_bytes == memory.lower_bound == 512
    assert memory.ratio == 1.0
    assert [tensor.nbytes for tensor in memory.at_peak] == [256, 256]
    assert {tensor.made_by for tensor in memory.at_peak} == {"args_0", "aten.sin.out"}
    sine = next(tensor for tensor in memory.at_peak if tensor.made_by == "aten.sin.out")
    assert (sine.dtype, sine.shape) == ("float32", (8, 8))
    assert sine.source_line.startswith("tests/exir/small_models.py:")
    assert memory.peak_at.startswith("aten.sin.out (tests/exir/small_models.py:")


def test_the_report_can_be_printed_and_written_as_json() -> None:
    planning = MemoryPlanningPass(naive)
    manager = edge_program_of("everything").to_executorch(
        ExecutorchBackendConfig(kernels="executorch-portable", memory_planning_pass=planning)
    )
    report = manager.memory_report()
    (memory,) = report.memories
    assert memory.planned_bytes > memory.lower_bound
    text = str(report)
    assert text.startswith(f"method forward, memory 1: {memory.planned_bytes:,} bytes planned, lower bound")
    assert f"({memory.ratio:.3f}x), reached at " in text
    (written,) = json.loads(json.dumps(report.to_dict()))["memories"]
    assert written["planned_bytes"] == memory.planned_bytes
    assert written["at_peak"][0]["nbytes"] == memory.at_peak[0].nbytes


def test_many_tensors_at_the_peak_are_summed_up() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x + n for n in range(14)])

    text = str(edge_of(function, random(4)).to_executorch(PORTABLE).memory_report())
    assert "in 5 smaller tensors" in text


@pytest.mark.parametrize("name", sorted(CASES))
def test_plans_are_near_the_lower_bound(name: str) -> None:
    manager = edge_program_of(name).to_executorch(PORTABLE)
    for memory in manager.memory_report().memories:
        assert memory.ratio <= 1.05


def test_the_plan_of_a_u_net_meets_the_lower_bound() -> None:
    model = UNet(width=4, levels=3).eval()
    with torch.no_grad():
        program = torch.export.export(model, (torch.randn(1, 3, 32, 32),))
    (memory,) = to_edge(program).to_executorch().memory_report().memories
    assert memory.planned_bytes == memory.lower_bound
