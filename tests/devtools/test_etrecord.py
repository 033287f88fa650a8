"""ETRecord: what an export keeps for tools, in files that both sides read."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import torch

from pteron.compat.exir.serde.executorch_form import from_executorch_form, to_executorch_form
from pteron.devtools import ETRecord, generate_etrecord, parse_etrecord
from pteron.devtools.bundled_program import BundledProgram, MethodTestCase, MethodTestSuite
from pteron.errors import ExportError
from pteron.exir import to_edge, to_edge_transform_and_lower
from pteron.exir.recipes.export_session import export
from tests.devtools.recorded_model import Recorded, captured

pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"
)


def handles(program: Any) -> list[tuple[str, Any]]:
    return [(n.name, n.meta.get("debug_handle")) for n in program.graph.nodes if n.op == "call_function"]


@pytest.fixture(scope="module")
def record() -> ETRecord:
    program, x = captured()
    made = to_edge(program, generate_etrecord=True).to_executorch().get_etrecord()
    made.update_representative_inputs([x])
    return made


def saved(record: ETRecord, path: Path) -> ETRecord:
    record.save(path)
    return parse_etrecord(path)


def test_a_record_is_read_as_it_was_written(record: ETRecord, tmp_path: Path) -> None:
    read = saved(record, tmp_path / "record")
    assert handles(read.edge_dialect_program) == handles(record.edge_dialect_program)
    assert handles(read.exported_program)
    _, x = captured()
    ours = record.edge_dialect_program.module()(x)
    torch.testing.assert_close(read.edge_dialect_program.module()(x), ours)
    for name in ("_debug_handle_map", "_delegate_map", "_instruction_id_to_num_outs_map"):
        assert getattr(read, name) == json.loads(json.dumps(getattr(record, name)))
    torch.testing.assert_close(read._representative_inputs, [x])
    assert "methods ['forward']" in repr(read)


def test_nothing_is_kept_unless_asked_for() -> None:
    manager = to_edge(captured()[0]).to_executorch()
    with pytest.raises(ExportError, match=r"ETRecord was not generated.*generate_etrecord=True"):
        manager.get_etrecord()


def test_the_record_has_the_stages(tmp_path: Path) -> None:
    def unchanged(module: torch.fx.GraphModule) -> None:
        """A pass that changes nothing."""

    programs = {"forward": captured()[0], "second": captured()[0]}
    manager = to_edge_transform_and_lower(programs, transform_passes=[unchanged], generate_etrecord=True)
    read = saved(manager.to_executorch().get_etrecord(), tmp_path / "record")
    assert sorted(read.edge_dialect_program) == ["forward", "second"]
    assert sorted(read.graph_map) == ["edge_after_transform/forward", "edge_after_transform/second"]
    session = export(Recorded().eval(), [(captured()[1],)], generate_etrecord=True)
    assert session.get_etrecord().exported_program is not None


def test_a_bundle_brings_inputs_and_outputs() -> None:
    program, x = captured()
    edge = to_edge(program)
    cases = [MethodTestCase([x], program.module()(x))]
    bundle = BundledProgram(edge.to_executorch(), [MethodTestSuite("forward", cases)])
    file = io.BytesIO()
    generate_etrecord(file, edge, bundle, program, {"again": program})
    read = parse_etrecord(file)
    torch.testing.assert_close(read._representative_inputs, [x])
    assert [len(case) for case in read._reference_outputs["forward"]] == [2]
    assert list(read.graph_map) == ["again/forward"]
    without = BundledProgram(edge.to_executorch(), [MethodTestSuite("forward", [MethodTestCase([x])])])
    with pytest.raises(ExportError, match="Missing at least one set of expected outputs"):
        ETRecord().update_reference_outputs(without)


def test_what_is_there_is_not_replaced(record: ETRecord) -> None:
    program, _ = captured()
    manager = to_edge(program)
    with pytest.raises(ExportError, match="Exported program already exists"):
        record.add_exported_program(program)
    with pytest.raises(ExportError, match="Edge dialect program already exists"):
        record.add_edge_dialect_program(manager)
    with pytest.raises(ExportError, match="Executorch program data already exists"):
        record.add_executorch_program(manager.to_executorch())
    with pytest.raises(ExportError, match="reserved name"):
        ETRecord().add_extra_export_modules({"debug_handle_map": program})
    with pytest.raises(TypeError, match="expected an EdgeProgramManager or an ExportedProgram"):
        ETRecord().add_edge_dialect_program(3)  # type: ignore[arg-type]


def test_an_incomplete_record_is_not_saved(record: ETRecord, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="must contain edge dialect program"):
        record.copy().save(tmp_path / "record")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("damage", ["cut", "no identifier", "no json", "no program", "no tensors"])
def test_damaged_records_end_in_one_error(record: ETRecord, damage: str) -> None:
    whole = io.BytesIO()
    record.save(whole)
    if damage == "cut":
        with pytest.raises(ExportError, match="Invalid etrecord file"):
            parse_etrecord(io.BytesIO(whole.getvalue()[:500]))
        return
    damaged = io.BytesIO()
    changed = {
        "no json": ("debug_handle_map", b"{"),
        "no program": ("edge_dialect_exported_program/forward", b"[]"),
        "no tensors": ("exported_program_state_dict", b"nothing"),
        "no identifier": ("ETRECORD_V0", b""),
    }[damage]
    with ZipFile(whole) as read, ZipFile(damaged, "w") as written:
        for name in read.namelist():
            if damage == "no identifier" and name == "ETRECORD_V0":
                continue
            written.writestr(name, changed[1] if name == changed[0] else read.read(name))
    text = "identifier missing" if damage == "no identifier" else "damaged|cannot be read"
    with pytest.raises(ExportError, match=text):
        parse_etrecord(damaged)


def test_programs_have_executorch_s_form_but_those_with_delegates() -> None:
    import pteron.backends.demo.compiler_demo_backend
    from pteron.exir.backend.canonical_partitioners.all_node_partitioner import AllNodePartitioner

    assert pteron.backends.demo.compiler_demo_backend.BackendWithCompilerDemo is not None

    class Sine(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sin(x)

    edge = to_edge(torch.export.export(Sine(), (torch.ones(3),)))
    assert json.loads(to_executorch_form(edge.exported_program()).exported_program)["verifiers"] == ["EDGE"]
    lowered = edge.to_backend(AllNodePartitioner("BackendWithCompilerDemo", []))
    with pytest.raises(ExportError, match="without delegates"):
        to_executorch_form(lowered.exported_program())
    file = io.BytesIO()
    generate_etrecord(file, lowered, lowered.to_executorch())
    (call,) = [name for name, _ in handles(parse_etrecord(file).edge_dialect_program) if "delegate" in name]
    assert call == "executorch_call_delegate"


@pytest.mark.peer
def test_executorch_reads_ours_and_we_read_theirs(record: ETRecord, tmp_path: Path) -> None:
    from executorch.devtools import parse_etrecord as parse_theirs
    from executorch.exir import to_edge as to_their_edge

    record.save(tmp_path / "ours")
    theirs = parse_theirs(str(tmp_path / "ours"))
    assert [h for h in handles(theirs.edge_dialect_program) if "unused" not in h[0]] == handles(
        record.edge_dialect_program
    )
    program, x = captured()
    their_record = to_their_edge(program, generate_etrecord=True).to_executorch().get_etrecord()
    their_record.save(str(tmp_path / "theirs"))
    read = parse_etrecord(tmp_path / "theirs")
    torch.testing.assert_close(read.edge_dialect_program.module()(x), program.module()(x))
    assert handles(read.edge_dialect_program) == [
        each for each in handles(their_record.edge_dialect_program) if each[0] != "getitem_3"
    ]
    assert read._debug_handle_map["forward"]["0"] == their_record._debug_handle_map["forward"][0]


def test_bytes_that_are_no_program_are_refused() -> None:
    artifact = to_executorch_form(captured()[0])
    artifact.exported_program = artifact.exported_program[:-20]
    with pytest.raises(ExportError, match="the bytes of a program cannot be read"):
        from_executorch_form(artifact)
