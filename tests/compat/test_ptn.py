"""`.ptn` files: what is in them, and what is refused. ExecuTorch's own tests of them run with its suites."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
import torch
from pteron.compat.executorch.exir._serialize._ptn import (
    ALIASES_ENTRY,
    PTG_ENTRY,
    SAFETENSORS_ENTRY,
    read_ptn,
    write_ptn,
)
from safetensors.torch import load

GRAPH = b"a graph"


def entries(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as package:
        assert all(entry.compress_type == zipfile.ZIP_STORED for entry in package.infolist())
        return {name: package.read(name) for name in package.namelist()}


def test_equal_constants_are_stored_once_and_all_read_back(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "model.ptn"
    table = torch.arange(6.0).reshape(2, 3)
    constants = {
        "b": table.clone(),
        "a": table,
        "flat": table.reshape(6),
        "t": table.t(),
        "half": torch.ones(3, dtype=torch.bfloat16),
        "state": table.clone(),
        "none": torch.zeros(0, 4),
        "number": torch.tensor(7),
    }
    write_ptn(str(path), GRAPH, constants, mutable_keys=frozenset({"state"}))
    found = entries(path)
    assert found[PTG_ENTRY] == GRAPH
    assert json.loads(found[ALIASES_ENTRY]) == {"b": "a"}
    stored = load(found[SAFETENSORS_ENTRY])
    assert stored.keys() == constants.keys() - {"b"}
    graph, read = read_ptn(str(path))
    assert graph == GRAPH
    assert read.keys() == constants.keys()
    assert all(torch.equal(read[key], value) for key, value in constants.items())
    assert all(read[key].dtype == value.dtype for key, value in constants.items())
    assert list(path.parent.iterdir()) == [path]


def test_a_file_without_constants_is_the_graph_alone(tmp_path: Path) -> None:
    path = tmp_path / "model.ptn"
    write_ptn(str(path), GRAPH, {})
    assert entries(path) == {PTG_ENTRY: GRAPH}
    assert read_ptn(str(path)) == (GRAPH, {})


@pytest.mark.parametrize(
    ("constants", "mutable", "error", "says"),
    [
        ({1: torch.ones(1)}, (), TypeError, "data key must be str, got int"),
        ({"a": 1.0}, (), TypeError, "'a' must be a Tensor, got float"),
        ({"__metadata__": torch.ones(1)}, (), ValueError, "reserved by safetensors"),
        ({"a": torch.ones(1, dtype=torch.complex128)}, (), KeyError, "complex128"),
        ({}, ("a",), ValueError, r"no tensor data: \['a'\]"),
    ],
)
def test_what_the_file_cannot_hold_is_refused_and_leaves_the_old_one(
    tmp_path: Path, constants: dict, mutable: tuple[str, ...], error: type[Exception], says: str
) -> None:
    path = tmp_path / "model.ptn"
    write_ptn(str(path), GRAPH, {"a": torch.ones(1)})
    before = path.read_bytes()
    with pytest.raises(error, match=says):
        write_ptn(str(path), b"another", constants, frozenset(mutable))
    assert path.read_bytes() == before


def test_state_that_shares_memory_is_refused(tmp_path: Path) -> None:
    memory = torch.arange(8.0)
    constants = {"a": memory[:4], "b": memory[2:6]}
    with pytest.raises(ValueError, match=r"share source storage .*\['a', 'b'\]"):
        write_ptn(str(tmp_path / "model.ptn"), GRAPH, constants, frozenset({"b"}))
    write_ptn(str(tmp_path / "model.ptn"), GRAPH, constants)


@pytest.mark.parametrize(
    ("aliases", "says"),
    [
        ([], "must contain a JSON object"),
        ({"b": 1}, "owner name must be a string"),
        ({"b": "c"}, "has no safetensors entry"),
        ({"a": "a"}, "both a safetensors owner and an alias"),
        ({"__metadata__": "a"}, "reserved by safetensors"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(tmp_path: Path, aliases: object, says: str) -> None:
    path = tmp_path / "model.ptn"
    write_ptn(str(path), GRAPH, {"a": torch.ones(1)})
    with zipfile.ZipFile(path, "a") as package:
        package.writestr(ALIASES_ENTRY, json.dumps(aliases))
    with pytest.raises(ValueError, match=says):
        read_ptn(str(path))
