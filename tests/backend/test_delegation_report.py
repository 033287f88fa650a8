"""What the delegation report says: where every operator went, and why some stayed."""

from __future__ import annotations

import json
import logging
import sys

import pytest
import torch
from torch.export import Dim, export

from pteron.exir import EdgeProgramManager, to_edge, to_edge_transform_and_lower
from pteron.exir.backend.delegation_info import get_delegation_info, print_delegation_info
from pteron.exir.backend.operator_support import DontPartition
from pteron.exir.backend.partition_report import WhyNoPartition, WhyNoPartitionReporter
from pteron.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from pteron.exir.edge.exir_ops import exir_ops
from tests.backend.lowering_cases import Function, TagBy, delegate_calls, operators

SPEC = DelegationSpec("RecordingBackend", [])


class Mixed(torch.nn.Module):
    def forward(self, x, n):
        y = torch.sin(x) + torch.cos(x)
        total = n + n
        return torch.cond(y.sum() > 0, torch.tan, torch.neg, (y,)), total


LINE = Mixed.forward.__code__.co_firstlineno


def summaries(caplog):
    """The lines that delegation logged; torch logs much else."""
    return [record for record in caplog.records if record.name.startswith("pteron")]


@pytest.fixture(scope="module")
def mixed() -> EdgeProgramManager:
    dim = Dim("n", min=2, max=8)
    shapes = ({0: dim}, None)
    return to_edge(export(Mixed(), (torch.ones(4), torch.tensor([1])), dynamic_shapes=shapes))


def test_reasons_and_lines_of_what_stayed(mixed) -> None:
    lowered = mixed.to_backend(
        TagBy(lambda n: "t" if n.name in ("aten_cos_default", "aten_add_tensor") else None)
    )
    report = lowered.delegation_report()["forward"]
    assert report.backends == {"RecordingBackend": (1, 2)}
    found = {node.operator: node for node in report.left}
    assert found["aten.sin.default"].reason == "TagBy: no backend claims it"
    assert found["aten.sin.default"].source_line == f"tests/backend/test_delegation_report.py:{LINE + 1}"
    assert "control flow" in found["cond"].reason


def test_dtype_is_a_reason(mixed) -> None:
    report = mixed.to_backend(
        TagBy(lambda n: "t" if n.name == "aten_add_tensor" else None)
    ).delegation_report()["forward"]
    [left] = [n for n in report.left if n.operator == "aten.add.Tensor" and n.node == "aten_add_tensor_1"]
    assert left.reason == "TagBy: dtype: it is taken with float32 elsewhere, here it has int64"


def test_dynamic_shape_is_a_reason() -> None:
    program = export(
        Function(lambda x, y: (torch.sin(x), torch.sin(y))),
        (torch.ones(3), torch.ones(4)),
        dynamic_shapes=(({0: Dim("n", min=2, max=8)}, None),),
    )
    report = (
        to_edge(program)
        .to_backend(TagBy(lambda n: "t" if n.name == "aten_sin_default_1" else None))
        .delegation_report()["forward"]
    )
    [left] = report.left
    assert left.reason == "TagBy: dynamic shape: it is taken with static shapes elsewhere"


def test_a_cycle_is_a_reason() -> None:
    program = export(Function(lambda x: torch.sin(torch.cos(torch.sin(x)))), (torch.ones(3),))
    report = (
        to_edge(program)
        .to_backend(TagBy(lambda n: "t" if n.name == "aten_sin_default" else None))
        .delegation_report()["forward"]
    )
    reasons = {node.node: node.reason for node in report.left}
    # The second sin has no neighbour in the partition: nothing is known about it.
    assert reasons["aten_sin_default_1"] == "TagBy: it is taken elsewhere; the partitioner gave no reason"
    program = export(Function(lambda x: (y := x + 1.0) + torch.cos(y)), (torch.ones(3),))
    report = (
        to_edge(program)
        .to_backend(TagBy(lambda n: "t" if n.name == "aten_add_tensor" else None))
        .delegation_report()["forward"]
    )
    reasons = {node.node: node.reason for node in report.left}
    assert reasons["aten_add_tensor_1"].startswith("TagBy: would make a cycle: partition 't'")
    assert reasons["aten_cos_default"] == "TagBy: no backend claims it"


class Reporting(Partitioner):
    """Takes nothing and says why."""

    def partition(self, exported_program):
        reporter = WhyNoPartitionReporter()
        why = WhyNoPartition(logging.getLogger("test"))
        rejects = DontPartition(exir_ops.edge.aten.sum.dim_IntList)
        for node in exported_program.graph.nodes:
            if node.name == "aten_sin_default":
                reporter.report_reject(node, "sin of rank 1 is not supported")
            if node.name == "aten_cos_default":
                why(node, "cos is slow here")
            rejects.is_node_supported({}, node)
        return PartitionResult(exported_program, {})


def test_the_partitioners_own_reason_comes_first(mixed) -> None:
    report = mixed.to_backend(Reporting()).delegation_report()["forward"]
    reasons = {node.node: node.reason for node in report.left}
    assert reasons["aten_sin_default"] == "Reporting: sin of rank 1 is not supported"
    assert reasons["aten_cos_default"] == "Reporting: cos is slow here"
    assert "Reporting: rejected by DontPartition" in reasons.values()


def test_every_partitioner_has_its_say(mixed) -> None:
    lowered = mixed.to_backend(Reporting()).to_backend(TagBy(operators("add")))
    report = lowered.delegation_report()["forward"]
    assert report.partitioners == ("Reporting", "TagBy")
    [cos] = [node for node in report.left if node.node == "aten_cos_default"]
    assert cos.reason == "Reporting: cos is slow here; TagBy: no backend claims it"


def test_methods_nobody_partitioned_say_so(mixed, caplog) -> None:
    report = mixed.delegation_report()
    assert list(report) == ["forward"]
    assert {node.reason for node in report["forward"].left} == {"no partitioner was given for this method"}
    mixed.log_delegation()
    assert summaries(caplog) == []


def test_all_forms_say_the_same(mixed) -> None:
    report = mixed.to_backend(TagBy(operators("sin", "cos"))).delegation_report()
    plain = report.to_dict()
    assert json.loads(report.to_json()) == plain
    assert plain["forward"]["backends"] == {"RecordingBackend": {"delegates": 1, "nodes": 2}}
    assert plain["forward"]["delegates"][0]["operators"] == {"aten.sin.default": 1, "aten.cos.default": 1}
    rows = report.rows()
    assert len(rows) == 2 + plain["forward"]["runtime"]["nodes"]
    assert {row["place"] for row in rows} == {"RecordingBackend", "runtime"}
    text = str(report)
    assert text.startswith("method 'forward': 1 delegate with 2 operators, ")
    for name in ("lowered_module_0", "aten.add.Tensor", "no backend claims it", "test_delegation_report.py:"):
        assert name in text


def test_a_data_frame_needs_pandas(mixed, monkeypatch) -> None:
    report = mixed.delegation_report()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pip install \"pteron\[devtools\]\""):
        report.to_dataframe()
    with pytest.raises(ImportError, match=r"pip install \"pteron\[devtools\]\""):
        get_delegation_info(mixed.exported_program().graph_module).get_operator_delegation_dataframe()


def test_the_report_as_a_data_frame(mixed) -> None:
    report = mixed.delegation_report()
    frame = report.to_dataframe()
    assert list(frame.columns) == list(report.rows()[0])
    assert frame["operator"].tolist() == [row["operator"] for row in report.rows()]


def test_one_line_is_logged_where_something_stayed(caplog) -> None:
    captured = {
        "a": export(Function(torch.sin), (torch.ones(2),)),
        "b": export(Function(lambda x: torch.sin(torch.cos(x))), (torch.ones(2),)),
    }
    lowered = to_edge(captured).to_backend({"b": TagBy(operators("sin"))})
    [record] = summaries(caplog)
    assert (record.name, record.levelname) == ("pteron.exir.program", "WARNING")
    assert record.getMessage() == (
        "delegation: of 2 operators 1 to RecordingBackend, 1 to the runtime: "
        "aten.cos.default x1 (TagBy: no backend claims it); delegation_report() has it all"
    )
    caplog.clear()
    lowered.to_backend({"b": SPEC})
    assert summaries(caplog) == []
    both = [TagBy(operators("sin")), TagBy(operators("tan"))]
    to_edge_transform_and_lower(captured, partitioner={"b": both})
    [record] = summaries(caplog)
    assert "1 to RecordingBackend, 1 to the runtime" in record.getMessage()


def test_nested_delegates_count_with_what_is_in_them(mixed) -> None:
    inner = mixed.to_backend(TagBy(operators("sin")))
    outer = inner.to_backend(SPEC)
    [delegate] = outer.delegation_report()["forward"].delegates
    assert delegate.operators["aten.sin.default"] == 1
    assert delegate.operators["aten.neg.default"] == 1
    assert outer.delegation_report()["forward"].left == []


def test_counts_in_the_form_of_the_peers_tools(mixed, capsys) -> None:
    program = mixed.to_backend(TagBy(operators("sin", "add"))).exported_program()
    info = get_delegation_info(program.graph_module)
    assert info.num_delegated_subgraphs == len(delegate_calls(program))
    kinds = info.delegation_by_operator
    assert (kinds["aten_sin_default"].delegated, kinds["aten_cos_default"].non_delegated) == (1, 1)
    total = [info.num_delegated_nodes, info.num_non_delegated_nodes]
    assert list(info.rows()[-1]) == ["Total", *total]
    assert f"Number of delegated nodes: {total[0]}\n" in info.get_summary()
    print_delegation_info(program.graph_module)
    assert "aten_sin_default" in capsys.readouterr().out
