"""What managers say about their lowering: each pass, each partition, with the calls that they changed."""

from __future__ import annotations

import json
from collections import Counter

import pytest
import torch
from torch.export import export
from torch.fx.passes.infra.pass_base import PassResult

from pteron.backends.demo import AddMulPartitionerDemo
from pteron.exir import (
    EdgeProgramManager,
    ExecutorchBackendConfig,
    to_edge,
    to_edge_transform_and_lower,
)
from pteron.exir.lowering_report import HEADINGS, LoweringReport, calls_of
from pteron.exir.pass_order import CAPTURED, FUNCTIONAL, INTO_MEMORY, PLAN, TO_CORE_ATEN, TO_EDGE


class Network(torch.nn.Module):
    """A product whose weight is transposed, copies, and sums for a delegate."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin((self.layer(x) + x) * x)


def captured() -> torch.export.ExportedProgram:
    return export(Network().eval(), (torch.ones(2, 4),))


def test_the_steps_lead_from_the_captured_to_the_planned_graph() -> None:
    source = captured()
    manager = to_edge(source)
    written = manager.to_executorch()
    steps = list(written.lowering_report())
    assert list(manager.lowering_report()) == steps[: len(manager.lowering_report())]
    stages = list(dict.fromkeys(step.stage for step in steps))
    listed = (CAPTURED, TO_CORE_ATEN, TO_EDGE, FUNCTIONAL, INTO_MEMORY, PLAN)
    assert stages == [*(stage.name for stage in listed), "to_executorch"]
    # The changes of all steps together are the difference between both ends.
    calls = calls_of(source)
    for step in steps:
        assert step.before == calls.total(), step
        for operator, (before, after) in step.operators.items():
            assert calls[operator] == before != after
            calls[operator] = after
        assert step.after == calls.total(), step
        assert step.seconds >= 0
    assert +calls == calls_of(written.exported_program())
    (folded,) = (step for step in steps if step.name == "FoldConstants")
    assert folded.operators == {"aten.permute_copy.default": (1, 0)}
    assert folded.text == "-1 aten.permute_copy.default"


def test_passes_that_do_not_run_are_not_named() -> None:
    plain = to_edge(captured()).to_executorch(ExecutorchBackendConfig(optimize=False))
    assert "FoldConstants" not in {step.name for step in plain.lowering_report()}


def test_partitions_and_backends() -> None:
    manager = to_edge(captured()).to_backend(AddMulPartitionerDemo())
    partition, backend = (step for step in manager.lowering_report() if step.stage == "to_backend")
    assert (partition.name, partition.method) == ("AddMulPartitionerDemo", "forward")
    assert partition.note == "1 partition"
    assert partition.before == partition.after
    report = manager.delegation_report()["forward"]
    (delegate,) = report.delegates
    assert backend.name == delegate.backend_id
    taken = {name: before for name, (before, after) in backend.operators.items() if before and not after}
    assert taken == delegate.operators
    assert backend.operators["executorch_call_delegate"] == (0, 1)
    assert to_edge(captured()).lowering_report()[-1].stage != "to_backend"


def test_one_call_and_passes_of_callers_record_the_same() -> None:
    def double_sin(module: torch.fx.GraphModule) -> PassResult:
        for node in list(module.graph.nodes):
            if "sin" in str(node.target):
                with module.graph.inserting_after(node):
                    again = module.graph.call_function(node.target, (node,))
                again.meta = dict(node.meta)
                node.replace_all_uses_with(again, lambda user, other=again: user is not other)
        return PassResult(module, True)

    manager = to_edge_transform_and_lower(
        captured(), transform_passes=[double_sin], partitioner=[AddMulPartitionerDemo()]
    )
    stages = Counter(step.stage for step in manager.lowering_report())
    assert stages["transform"] == 1
    assert stages["to_backend"] == 2
    (changed,) = (step for step in manager.lowering_report() if step.stage == "transform")
    assert changed.name == "double_sin"
    assert changed.operators == {"aten.sin.default": (1, 2)}


def test_methods_apart_and_a_manager_without_past() -> None:
    manager = to_edge({"one": captured(), "two": captured()})
    assert {step.method for step in manager.lowering_report()} == {"one", "two"}
    assert len(EdgeProgramManager(manager.exported_program("one")).lowering_report()) == 0


def test_how_it_shows_itself() -> None:
    written = to_edge(captured()).to_backend(AddMulPartitionerDemo()).to_executorch()
    report = written.lowering_report()
    text = str(report)
    assert text.splitlines()[0].split() == list(HEADINGS)
    assert "1 partition" in text
    assert "more changed no number of calls" in text
    whole = report.table(is_whole=True)
    assert len(whole.splitlines()) == len(report) + 2
    data = json.loads(report.to_json())
    assert [step["name"] for step in data["steps"]] == [step.name for step in report]
    assert data["seconds"] == pytest.approx(report.seconds)
    for shown in (written, report):
        html = shown._repr_html_()
        assert "AddMulPartitionerDemo" in html
        assert "<table>" in html
    assert repr(report) == f"<LoweringReport of {len(report)} steps, {report.seconds:.2f} s>"
    assert "0 steps" in str(LoweringReport([]))
