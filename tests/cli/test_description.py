"""The description of a program says what its file and its plan have."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import pteron
from pteron.devtools.description import describe, describe_plan
from pteron.devtools.sources import Source, Sources

ROOT = Path(__file__).resolve().parents[2]
XNNPACK = sorted((ROOT / "rust" / "pteron-xnnpack" / "tests").rglob("*.pte"))


def test_values_and_calls_are_the_files(model_file: Path) -> None:
    program = pteron.load(model_file)
    (method,) = describe(program).methods.values()
    assert {call.operator for call in method.calls if call.operator is not None} == set(program.operators())
    (x,), (y,) = method.inputs, method.outputs
    assert method.tensors[x].text == "float32[1, 3, 8, 8]"
    assert method.tensors[y].shape == (1, 4)
    for tensor in method.tensors.values():
        if tensor.arena is not None and tensor.offset is not None:
            assert tensor.offset + tensor.nbytes <= method.arenas[tensor.arena]
        if tensor.stored is not None:
            start, end = tensor.stored["range"]
            assert end - start == tensor.nbytes <= model_file.stat().st_size


def test_steps_cover_the_calls(model_file: Path) -> None:
    program = pteron.load(model_file)
    plan = describe_plan(program)
    assert [step.name for step in plan.steps] == list(program.kernels())
    covered = [at for step in plan.steps for at in step.calls]
    assert len(covered) == len(set(covered)) <= len(plan.calls)
    convolution = next(
        step
        for step in plan.steps
        if "aten::convolution.out" in [plan.calls[at].operator for at in step.calls]
    )
    assert convolution.writes == 4 * 8 * 36
    assert convolution.reads >= 4 * (3 * 64 + 8 * 27 + 8)


@pytest.mark.parametrize("path", XNNPACK, ids=lambda path: path.stem)
def test_parts_of_delegates_have_handles(path: Path) -> None:
    program = pteron.load(path)
    for name in program.methods:
        plan = describe_plan(program, name)
        assert any(step.parts for step in plan.steps)
        for step in plan.steps:
            assert all(part[0] < len(plan.delegates) for part in step.parts)
            assert Sources(program, name).of(step) == []


def test_sources_of_a_damaged_table_are_unknown(model_file: Path) -> None:
    program = pteron.load(pteron.strip(model_file.read_bytes()))
    assert all(Sources(program, "forward").of(step) == [] for step in describe_plan(program).steps)
    known = Sources(pteron.load(model_file), "forward")
    assert known.module_of(10**6) == "" == Source().module


def test_numbers_that_json_has_not() -> None:
    import torch

    from pteron.exir import to_edge

    class Clamp(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.full_like(x, math.inf) + x

    exported = torch.export.export(Clamp(), (torch.randn(3),))
    program = pteron.load(to_edge(exported).to_executorch().buffer)
    values = describe(program).methods["forward"].values
    assert {"double": "inf"} in values
