"""Delegates in a report: calls, blobs, and what they say of their own steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import pteron
from pteron.backends.demo import (
    AddMulPartitionerDemo,
    BackendWithDelegateMappingDemo,
    register_demo_backends,
)
from pteron.devtools.description import describe, describe_plan
from pteron.devtools.lifetimes import step_accesses
from pteron.devtools.profile import profile
from pteron.devtools.report import Subject, report
from pteron.devtools.report.layers import file_layer
from pteron.devtools.sources import Sources
from pteron.exir import to_edge
from pteron.exir.backend.backend_api import to_backend
from tests.backend.lowering_cases import edge
from tests.report.test_page import data_of


@pytest.fixture(scope="module")
def runtime() -> pteron.Runtime:
    made = pteron.Runtime()
    register_demo_backends(made, language="rust")
    return made


class Mixed(nn.Module):
    """Products and sums, which the demo takes, around a sine, which it does not."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a @ b + a).sin() @ b + b


def test_delegate_calls_are_nodes(runtime: pteron.Runtime) -> None:
    a, b = torch.randn(4, 4), torch.randn(4, 4)
    manager = to_edge(torch.export.export(Mixed(), (a, b))).to_backend(AddMulPartitionerDemo())
    content = manager.to_executorch().buffer
    program = pteron.load(content, runtime=runtime)
    layer = file_layer(describe(program).methods["forward"], Sources(program, "forward"))
    assert [node.backend for node in layer.nodes] == [
        "BackendWithCompilerDemo",
        "",
        "BackendWithCompilerDemo",
    ]
    assert [len(node.access.writes) for node in layer.nodes] == [1, 1, 1]
    writers = [{layer.flow.lifetimes[edge].writer for edge in edges} for edges in layer.flow.edges]
    assert writers == [{None}, {0}, {None, 1}]
    assert layer.flow.outputs[0][1] == 2

    accesses = step_accesses(describe_plan(program))
    assert [len(access.writes) for access in accesses] == [1, 1, 1]

    found = profile(program, [np.asarray(a), np.asarray(b)], runs=2, num_threads=1)
    data = data_of(report([Subject("mixed.pte", program, content, profiles={"": found})]).html)
    one, texts = data["programs"][0], data["texts"]
    kinds = [texts[at] for at in one["weights"]["kind"]]
    sums = {
        kind: sum(n for n, other in zip(one["weights"]["bytes"], kinds, strict=True) if other == kind)
        for kind in kinds
    }
    assert sums == {
        "BackendWithCompilerDemo": one["sizes"]["of delegates"],
        "named data": one["sizes"]["of named data"],
    }
    calls = [at for at, node in enumerate(layer.nodes) if node.backend]
    assert sorted({at for readers in one["weights"]["readers"] for at in readers}) == calls
    assert "Delegates of BackendWithCompilerDemo: 2 of 3 instructions." in one["advice"]


def test_what_a_delegate_says_of_its_steps_is_kept(runtime: pteron.Runtime) -> None:
    model, inputs = BackendWithDelegateMappingDemo.get_test_model_and_inputs()
    content = to_backend("BackendWithDelegateMappingDemo", edge(model, *inputs), []).buffer()
    program = pteron.load(content, runtime=runtime)
    found = profile(program, list(inputs), runs=1, warmup=0)
    data = data_of(report([Subject("demo.pte", program, content, profiles={"": found})]).html)
    events = data["runs"][0]["events"]
    assert [identifier for _, identifier, _, _ in events] == ["0", "1", "2", "3", "4"]
    inside = data["runs"][0]["inside"]
    assert [label.split()[0] for *_, label in inside] == ["0", "1", "2", "3", "4"]
    assert inside[0][3] == "0 conv_layer.conv1"
    ((at, begin, _),) = [span for span in data["runs"][0]["timeline"] if span[0] == events[0][0]]
    assert all(step == at and begin <= start <= end for step, start, end, _ in inside)
    assert {step for step, *_ in events} <= set(range(len(found.steps)))
