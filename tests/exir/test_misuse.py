"""What the compile half says to calls that are not meant like this."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from pteron.backends.demo import AddMulPartitionerDemo
from pteron.errors import ExportError
from pteron.exir import (
    EdgeCompileConfig,
    EdgeProgramManager,
    ExecutorchBackendConfig,
    capture,
    to_edge,
    to_edge_transform_and_lower,
)
from pteron.exir.backend.backend_api import MethodProgramsPartitionerSpec, to_backend
from pteron.exir.backend.backend_details import BackendDetails, PreprocessResult
from tests.exir.small_models import PORTABLE, Function, edge_of, emitted, random


class RefusedBackend(BackendDetails):
    """Must not be reached."""

    @staticmethod
    def preprocess(edge_program: Any, compile_specs: Any) -> PreprocessResult:
        raise AssertionError("preprocess ran")


def _captured() -> torch.export.ExportedProgram:
    return torch.export.export(Function(torch.sin), (random(2),))


@pytest.mark.parametrize("entry", [to_edge, to_edge_transform_and_lower, EdgeProgramManager])
@pytest.mark.parametrize(
    ("given", "says"),
    [
        (torch.nn.Linear(2, 2), r"got a model \(Linear\); call torch\.export\.export\(model, inputs\) first"),
        (None, r"got NoneType; torch\.export\.export"),
        ((1, 2), r"got tuple; torch\.export\.export"),
        ("model.pte", r"got str; torch\.export\.export"),
        ({"run": torch.nn.Linear(2, 2)}, r"method 'run': expected .*ExportedProgram, got a model \(Linear\)"),
        ({"run": None}, r"method 'run': expected .*ExportedProgram, got NoneType"),
    ],
)
def test_what_is_no_program(entry: Any, given: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says) as caught:
        entry(given)
    assert str(caught.value).startswith(f"{entry.__name__}: ")
    assert "expected a torch.export.ExportedProgram" in str(caught.value)


def test_programs_of_another_stage() -> None:
    with pytest.raises(TypeError, match=r"got CapturedProgram; it has a method to_edge\(\) of its own"):
        to_edge(capture(torch.sin, (random(2),)))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"got EdgeProgramManager; it has a method exported_program\(\)"):
        to_edge(edge_of(torch.sin, random(2)))  # type: ignore[arg-type]
    with pytest.raises(ExportError, match="needs at least one program"):
        to_edge_transform_and_lower({})
    with pytest.raises(TypeError, match="expected method names as keys, got 3"):
        to_edge({3: _captured()})  # type: ignore[dict-item]


def test_a_manager_of_programs_that_are_not_in_the_edge_dialect() -> None:
    with pytest.raises(
        ExportError, match=r"expected programs in the edge dialect, got dialect 'TRAINING'"
    ) as caught:
        EdgeProgramManager({"run": _captured()})
    assert caught.value.method == "run"
    assert "to_edge(program) brings it there" in str(caught.value)


def test_what_are_no_settings() -> None:
    edge = edge_of(torch.sin, random(2))
    wanted: list[tuple[str, Any, str]] = [
        (r"to_edge\(compile_config=", lambda: to_edge(_captured(), compile_config=3), "EdgeCompileConfig"),  # type: ignore[arg-type]
        (
            "to_edge_transform_and_lower",
            lambda: to_edge_transform_and_lower(_captured(), compile_config=3),  # type: ignore[arg-type]
            "EdgeCompileConfig",
        ),
        ("transform", lambda: edge.transform([], compile_config=3), "EdgeCompileConfig"),  # type: ignore[arg-type]
        ("to_executorch", lambda: edge.to_executorch(3), "ExecutorchBackendConfig"),  # type: ignore[arg-type]
        ("to_executorch", lambda: edge.to_executorch(EdgeCompileConfig()), "ExecutorchBackendConfig"),  # type: ignore[arg-type]
    ]
    for where, call, kind in wanted:
        with pytest.raises(TypeError, match=rf"^{where}.*: expected {kind} or None, got (int 3|EdgeCompile)"):
            call()
    with pytest.raises(TypeError, match=r"constant_methods: expected a dict .* got int 3"):
        to_edge(_captured(), constant_methods=3)  # type: ignore[arg-type]


def test_what_is_no_pass() -> None:
    edge = edge_of(torch.sin, random(2))
    with pytest.raises(TypeError, match=r"^transform: expected a graph pass, or a list of them, got int 3"):
        edge.transform(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^transform: expected a graph pass.*got NoneType None"):
        edge.transform([None])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"^transform, method 'forward': expected a graph pass.*got int 3"):
        edge.transform({"forward": 3})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match=r"ExecutorchBackendConfig\(passes=...\): expected a graph pass"):
        ExecutorchBackendConfig(passes=3)  # type: ignore[arg-type]


def test_save_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    manager = emitted(torch.sin, random(2))
    missing = tmp_path / "nowhere" / "x.pte"
    with pytest.raises(FileNotFoundError, match=r"nowhere does not exist, make it") as caught:
        manager.save(missing)
    assert caught.value.filename == str(missing)
    assert ".tmp" not in str(caught.value)
    folder = tmp_path / "folder.pte"
    folder.mkdir()
    with pytest.raises(IsADirectoryError, match=r"cannot be written") as caught:
        manager.save(folder)
    assert caught.value.filename == str(folder)
    assert ".tmp" not in str(caught.value)
    assert os.listdir(tmp_path) == ["folder.pte"]


def test_a_program_that_is_not_in_the_edge_dialect_reaches_no_backend() -> None:
    captured = _captured()
    says = r"expected a program in the edge dialect, got dialect 'TRAINING'"
    with pytest.raises(ExportError, match=says) as caught:
        to_backend("RefusedBackend", captured, [])
    assert "call to_edge on it first" in str(caught.value)
    with pytest.raises(ExportError, match=says):
        to_backend("RefusedBackend", capture(torch.sin, (random(2),)), [])
    with pytest.raises(ExportError, match=says):
        to_backend(captured, AddMulPartitionerDemo())
    with pytest.raises(ExportError, match=says):
        to_backend(MethodProgramsPartitionerSpec({"f": captured}, {"f": AddMulPartitionerDemo()}))
    with pytest.raises(TypeError, match=r"got Linear; make one with to_edge\(torch\.export\.export"):
        to_backend("RefusedBackend", torch.nn.Linear(2, 2), [])


def test_an_update_of_an_input_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    def updates(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2

    def ours() -> list[logging.LogRecord]:
        return [record for record in caplog.records if record.name.startswith("pteron")]

    edge_of(torch.sin, random(2)).to_executorch(PORTABLE)
    assert ours() == []
    buffer = edge_of(updates, torch.ones(2)).to_executorch(PORTABLE).buffer
    (record,) = ours()
    assert record.levelname == "WARNING"
    assert "method 'forward' updates its input" in record.getMessage()
    assert "the caller's array stays as it was" in record.getMessage()

    import pteron

    given = torch.ones(2)
    torch.testing.assert_close(pteron.load(buffer).run("forward", given), torch.full((2,), 4.0))
    torch.testing.assert_close(given, torch.ones(2))
