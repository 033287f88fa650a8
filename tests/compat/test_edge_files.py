"""`exir.save` and `exir.load`: what is read is what was written, and lowers to the same file."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from pteron.compat.executorch import exir
from pteron.compat.executorch.exir.serde.serialize import deserialize, serialize
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import Dim, ExportedProgram

from pteron.errors import ExportError
from pteron.exir import EdgeProgramManager, to_edge
from pteron.exir.backend.lowered_backend_module import get_lowered_backend_modules
from tests.exir.small_models import CASES, edge_program_of, random


def edge_of(model: torch.nn.Module, *inputs: torch.Tensor, **options: Any) -> ExportedProgram:
    return to_edge(torch.export.export(model.eval(), inputs, **options)).exported_program()


def copied(program: ExportedProgram) -> ExportedProgram:
    buffer = io.BytesIO()
    exir.save(program, buffer)
    return exir.load(buffer)


def described(program: ExportedProgram) -> list[Any]:
    return [
        (node.name, node.op, str(node.target), node.meta.get("debug_handle"), _value(node))
        for module in program.graph_module.modules()
        if isinstance(module, torch.fx.GraphModule)
        for node in module.graph.nodes
    ]


def _value(node: torch.fx.Node) -> str:
    return "" if node.op == "output" else str(node.meta.get("val"))


@pytest.mark.parametrize("name", CASES)
def test_an_edge_program_lowers_to_the_same_file_as_before(name: str) -> None:
    program = edge_program_of(name).exported_program()
    read = copied(program)
    assert described(read) == described(program)
    assert read.dialect == program.dialect
    assert (
        EdgeProgramManager(read).to_executorch().buffer == EdgeProgramManager(program).to_executorch().buffer
    )


def test_extents_keep_their_bounds(tmp_path: Path) -> None:
    batch = Dim("batch", min=2, max=7)
    program = edge_of(torch.nn.Linear(3, 4), random(2, 3), dynamic_shapes=({0: batch},))
    exir.save(program, tmp_path / "model.edge", extra_files={"note": "ä"})
    texts: dict[str, str] = {}
    read = exir.load(tmp_path / "model.edge", extra_files=texts)
    assert texts == {"note": "ä"}
    assert [(str(each.lower), str(each.upper)) for each in read.range_constraints.values()] == [("2", "7")]
    x = random(5, 3)
    torch.testing.assert_close(read.module()(x), program.module()(x))


class _Branches(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, flag: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(flag, lambda x: self.linear(x).sin(), lambda x: x.cos(), (x,))


def test_delegates_keep_blob_settings_and_debug_ids() -> None:
    from pteron.backends.demo import AddMulPartitionerDemo

    class Model(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return torch.mm(a, b).sin() + b

    edge = to_edge(torch.export.export(Model(), (random(2, 2), random(2, 2))))
    lowered = edge.to_backend(AddMulPartitionerDemo()).exported_program()
    read = copied(lowered)
    for one, other in zip(
        get_lowered_backend_modules(lowered.graph_module),
        get_lowered_backend_modules(read.graph_module),
        strict=True,
    ):
        assert one.backend_id == other.backend_id
        assert one.processed_bytes == other.processed_bytes
        assert [(spec.key, bytes(spec.value)) for spec in one.compile_specs] == [
            (spec.key, bytes(spec.value)) for spec in other.compile_specs
        ]
        assert (one.meta or {}).get("debug_handle_map") == (other.meta or {}).get("debug_handle_map")
    assert (
        EdgeProgramManager(read).to_executorch().buffer == EdgeProgramManager(lowered).to_executorch().buffer
    )


def test_branches_are_kept_whole() -> None:
    program = edge_of(_Branches(), torch.tensor(True), random(2, 4))
    read = copied(program)
    for flag in (True, False):
        inputs = (torch.tensor(flag), random(2, 4))
        torch.testing.assert_close(read.module()(*inputs), program.module()(*inputs))


@pytest.mark.parametrize("name", ["mlp", "many_results", "convolutional"])
def test_a_planned_program_computes_the_same_in_pytorch(name: str) -> None:
    planned = edge_program_of(name).to_executorch().exported_program()
    read = deserialize(serialize(planned))
    inputs = CASES[name].args
    with torch.no_grad():
        torch.testing.assert_close(read.module()(*inputs), planned.module()(*inputs))


def test_weights_without_storage_stay_without() -> None:
    program = edge_of(torch.nn.Linear(3, 4), random(2, 3))
    mode = FakeTensorMode()
    program._state_dict = {
        name: mode.from_tensor(value, static_shapes=True) for name, value in program.state_dict.items()
    }
    artifact = serialize(program)
    assert len(artifact.state_dict) < 4096
    read = deserialize(artifact)
    assert {name: tuple(value.shape) for name, value in read.state_dict.items()} == {
        "weight": (4, 3),
        "bias": (4,),
    }


def test_files_of_others_are_refused(tmp_path: Path) -> None:
    target = tmp_path / "other"
    torch.export.save(torch.export.export(torch.nn.ReLU(), (random(2),)), target)
    with pytest.raises(ExportError, match=r"has no 'serialized_exported_program\.json'"):
        exir.load(target)
    with zipfile.ZipFile(target, "w") as archive:
        for name in ("exported_program.json", "state_dict.pt", "constants.pt", "example_inputs.pt"):
            archive.writestr(f"serialized_{name}", b"{}")
    with pytest.raises(ExportError, match="not the bytes of a program that pteron wrote"):
        exir.load(target)
    with pytest.raises(TypeError, match="expected an ExportedProgram"):
        exir.save(torch.nn.ReLU(), target)
