"""The managers of a program's methods."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
import torch
from torch.fx.passes.infra.pass_base import PassResult

from pteron.errors import ExportError, VerificationError
from pteron.exir import ExecutorchBackendConfig, to_edge, to_edge_transform_and_lower
from pteron.exir.edge.exir_ops import exir_ops
from pteron.exir.passes.spec_prop_pass import SpecPropPass
from tests.exir.small_models import PORTABLE, Function, edge_of, emitted, random, targets

_METHODS = {"first": torch.sin, "second": torch.cos}


def _two_methods():
    return {name: torch.export.export(Function(f), (random(2),)) for name, f in _METHODS.items()}


def _sin_to_cos(module: torch.fx.GraphModule) -> PassResult:
    for node in module.graph.nodes:
        if node.target is exir_ops.edge.aten.sin.default:
            node.target = exir_ops.edge.aten.cos.default
    return PassResult(module, True)


def test_methods_and_their_programs() -> None:
    edge = to_edge(_two_methods(), constant_methods={"n": 3})
    assert edge.methods == {"first", "second"}
    assert edge.config_methods == {"n"}
    assert targets(edge.exported_program("second")) == ["aten.cos.default"]
    with pytest.raises(KeyError, match="no method 'forward'"):
        edge.exported_program()
    with pytest.raises(ExportError, match="'first' is both a program and a constant method"):
        to_edge(_two_methods(), constant_methods={"first": 3})


def test_transform_makes_a_new_manager() -> None:
    edge = edge_of(torch.sin, random(2))
    changed = edge.transform([_sin_to_cos])
    assert targets(changed.exported_program()) == ["aten.cos.default"]
    assert targets(edge.exported_program()) == ["aten.sin.default"]
    assert targets(edge.transform(_sin_to_cos).exported_program()) == ["aten.cos.default"]


def test_transform_can_name_methods() -> None:
    edge = to_edge({name: torch.export.export(Function(torch.sin), (random(2),)) for name in ("a", "b")})
    changed = edge.transform({"b": [_sin_to_cos]})
    assert targets(changed.exported_program("a")) == ["aten.sin.default"]
    assert targets(changed.exported_program("b")) == ["aten.cos.default"]
    with pytest.raises(ExportError, match="no method 'c'"):
        edge.transform({"c": [_sin_to_cos]})


def test_transform_verifies_its_result() -> None:
    def to_aten(module: torch.fx.GraphModule) -> None:
        for node in module.graph.nodes:
            if node.target is exir_ops.edge.aten.sin.default:
                node.target = exir_ops.edge.aten.sin_.default

    with pytest.raises(VerificationError, match="changes its arguments"):
        edge_of(torch.sin, random(2)).transform([to_aten])


def test_a_pass_that_adds_an_output_is_refused() -> None:
    def add_output(module: torch.fx.GraphModule) -> None:
        output = module.graph.output_node()
        output.args = ((*output.args[0], output.args[0][0]),)

    with pytest.raises(ExportError, match="changed the number of graph outputs"):
        edge_of(torch.sin, random(2)).transform([add_output])


def test_passes_of_the_backend_config_run() -> None:
    config = ExecutorchBackendConfig(passes=_sin_to_cos, kernels="executorch-portable")
    program = edge_of(torch.sin, random(2)).to_executorch(config).executorch_program
    assert [operator.name for operator in program.execution_plan[0].operators] == ["aten::cos"]
    one_pass = ExecutorchBackendConfig(passes=SpecPropPass(), kernels="executorch-portable")
    assert edge_of(torch.sin, random(2)).to_executorch(one_pass).methods == {"forward"}


def test_to_executorch_leaves_the_edge_program_as_it_was() -> None:
    edge = edge_of(lambda x: x.view(4).sin(), random(2, 2))
    before = str(edge.exported_program().graph)
    edge.to_executorch(PORTABLE)
    assert str(edge.exported_program().graph) == before
    assert "spec" not in next(iter(edge.exported_program().graph.nodes)).meta


def test_the_planned_graph_can_be_looked_at() -> None:
    manager = emitted(torch.sin, random(2))
    assert "aten.sin.out" in str(manager.exported_program().graph)
    with pytest.raises(KeyError, match="no method 'other'"):
        manager.exported_program("other")


def test_code_of_graphs_is_generated_when_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    edge = edge_of(lambda x: torch.sin(torch.sin(x.view(2, 3))), random(6))
    generated: list[torch.fx.Graph] = []
    python_code = torch.fx.Graph.python_code
    monkeypatch.setattr(
        torch.fx.Graph,
        "python_code",
        lambda graph, *a, **k: generated.append(graph) or python_code(graph, *a, **k),
    )
    planned = edge.to_executorch(PORTABLE).exported_program()
    assert generated == []
    assert planned.graph_module.code.count("sin.out") == 2
    assert len(generated) == 1


def test_buffer_and_files_hold_the_same_bytes(tmp_path: Path) -> None:
    manager = emitted(torch.sin, random(2))
    assert manager.buffer[4:8] == b"ET12"
    assert manager.buffer is manager.buffer
    stream = io.BytesIO()
    manager.write_to_file(stream)
    assert stream.getvalue() == manager.buffer
    manager.save(tmp_path / "model.pte")
    assert (tmp_path / "model.pte").read_bytes() == manager.buffer
    assert os.listdir(tmp_path) == ["model.pte"]


def test_save_replaces_the_whole_file_or_nothing(tmp_path: Path) -> None:
    manager = emitted(torch.sin, random(2))
    path = tmp_path / "model.pte"
    path.write_bytes(b"old")
    with pytest.raises(ValueError, match=r"ends in \.pte"):
        manager.save(tmp_path / "model.bin")
    with pytest.raises(FileNotFoundError):
        manager.save(tmp_path / "nowhere" / "model.pte")
    assert path.read_bytes() == b"old"
    manager.save(path)
    assert path.read_bytes() == manager.buffer


def test_the_same_model_gives_the_same_bytes() -> None:
    assert (
        emitted(lambda x: x.sin() + 1, random(3)).buffer == emitted(lambda x: x.sin() + 1, random(3)).buffer
    )


def test_a_listing_is_printed() -> None:
    out = io.StringIO()
    emitted(torch.sin, random(2)).dump_executorch_program(out=out)
    assert "aten::sin.out" in out.getvalue()


def test_lowering_without_partitioner_is_to_edge() -> None:
    captured = torch.export.export(torch.nn.Linear(3, 2), (random(1, 3),))
    lowered = to_edge_transform_and_lower(captured, transform_passes=[_sin_to_cos])
    assert targets(lowered.exported_program()) == targets(to_edge(captured).exported_program())
    with pytest.raises(ExportError, match="no method 'backward'"):
        to_edge_transform_and_lower(captured, partitioner={"backward": []})


def test_passes_on_the_way_can_name_methods() -> None:
    seen: list[str] = []

    def note(module: torch.fx.GraphModule) -> None:
        seen.append(next(iter(module.graph.nodes)).name)

    methods = _two_methods()
    to_edge_transform_and_lower(methods, transform_passes={"second": [note]})
    assert len(seen) == 1
    with pytest.raises(ExportError, match="no method 'third'"):
        to_edge_transform_and_lower(methods, transform_passes={"third": [note]})


@pytest.mark.parametrize("entry", [to_edge, to_edge_transform_and_lower])
def test_an_etrecord_is_kept_where_it_is_asked_for(entry) -> None:
    methods = _two_methods()
    with pytest.raises(ExportError, match="ETRecord was not generated"):
        entry(methods, generate_etrecord=False).to_executorch().get_etrecord()
    record = entry(methods, generate_etrecord=True).to_executorch().get_etrecord()
    assert sorted(record.edge_dialect_program) == ["first", "second"]
