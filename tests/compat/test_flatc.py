"""The stand-in for the FlatBuffers compiler writes and reads what the compiler of ExecuTorch's wheel does."""

from __future__ import annotations

import json
import os
import random
import subprocess
from importlib.metadata import distribution
from pathlib import Path

import pytest
from pteron.compat.executorch.exir._serialize._flatbuffer import _flatc_compile, _flatc_decompile

from pteron.compat.flatc.compile_json import compile_json
from pteron.compat.flatc.read_binary import read_binary
from pteron.compat.flatc.schema import SchemaError, Struct, Type, read_schema

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = [
    "backends/xnnpack/serialization/schema.fbs",
    "backends/vulkan/serialization/schema.fbs",
    "backends/native/serialization/native_graph.fbs",
    "backends/arm/tosa/schemas/tosa_1.0.fbs",
    "backends/qualcomm/serialization/qc_compiler_spec.fbs",
    "backends/mlx/serialization/schema.fbs",
    "exir/_serialize/program.fbs",
    "extension/flat_tensor/serialize/flat_tensor.fbs",
]


def some_value(kind: Type, choose: random.Random, depth: int) -> object:
    """A JSON value of a type."""
    if kind.enum is not None:
        return choose.choice(list(kind.enum.values))
    if kind.scalar == "bool":
        return choose.choice([True, False])
    if kind.scalar in ("float", "double", "float32", "float64"):
        return choose.choice([0.0, 1.5, -2.25, 0.1, 1e10])
    if kind.scalar is not None:
        return choose.randint(0, 100)
    if kind.is_string:
        return choose.choice(["", "abc", "hello world", "é"])
    if kind.item is not None:
        return [
            some_value(kind.item, choose, depth + 1) for _ in range(choose.randint(0, 3 if depth < 6 else 0))
        ]
    assert kind.struct is not None
    return some_table(kind.struct, choose, depth + 1)


def some_table(table: Struct, choose: random.Random, depth: int = 0) -> dict[str, object]:
    """A JSON object of a table, with some of its fields."""
    made: dict[str, object] = {}
    unions = {f"{each.name}_type" for each in table.fields if each.type.union is not None}
    for each in table.fields:
        is_left_out = (
            not table.is_fixed and not each.is_required and choose.random() < (0.3 if depth < 5 else 0.8)
        )
        if each.name in unions or each.is_deprecated or is_left_out:
            continue
        if each.type.union is None:
            made[each.name] = some_value(each.type, choose, depth)
        elif depth <= 8:
            member = choose.choice(list(each.type.union.members))
            made[each.name] = some_value(each.type.union.members[member], choose, depth + 1)
            made[f"{each.name}_type"] = member
    return made


@pytest.fixture(scope="module")
def wheel() -> Path:
    pytest.importorskip("executorch")
    return Path(str(distribution("executorch").locate_file("executorch")))


@pytest.mark.peer
@pytest.mark.parametrize("path", SCHEMAS)
def test_bytes_are_the_compiler_s(path, wheel, tmp_path) -> None:
    compiler = wheel / "data/bin/flatc"
    if not os.access(compiler, os.X_OK):
        compiler.chmod(0o755)
    schema = read_schema(wheel / path)
    choose = random.Random(path)
    source = tmp_path / "data.json"
    for _ in range(10):
        value = some_table(schema.root, choose)
        source.write_text(json.dumps(value))
        subprocess.run([compiler, "--binary", "-o", tmp_path, wheel / path, source], check=True)
        written = tmp_path / f"data.{schema.extension}"
        theirs = written.read_bytes()
        written.unlink()
        assert compile_json(schema, value) == theirs


@pytest.mark.peer
def test_json_of_binary_is_the_compiler_s(wheel, tmp_path) -> None:
    path = wheel / "backends/xnnpack/serialization/schema.fbs"
    schema = read_schema(path)
    choose = random.Random(1)
    for _ in range(10):
        (tmp_path / "data.bin").write_bytes(compile_json(schema, some_table(schema.root, choose)))
        options = ["--json", "--defaults-json", "--strict-json"]
        compiler = wheel / "data/bin/flatc"
        subprocess.run([compiler, *options, "-o", tmp_path, path, "--", tmp_path / "data.bin"], check=True)
        theirs = json.loads((tmp_path / "data.json").read_text())
        _flatc_decompile(str(tmp_path), str(path), str(tmp_path / "data.bin"))
        assert json.loads((tmp_path / "data.json").read_text()) == theirs


SCHEMA = """
include "other.fbs";
namespace a.b;
attribute "mine";
file_identifier "TEST"; file_extension "tst";
enum Kind : byte { ONE = 1, TWO }
struct Pair { x: int; y: double; }
table Leaf { name: string (required); }
union Any { Leaf, Named: Other }
table Root { kind: Kind = TWO; pair: Pair; any: Any; leaves: [Leaf]; bytes: [ubyte] (force_align: 16);
  old: int (deprecated); maybe: int = null; ratio: float = 0.5; }
root_type Root;
"""


@pytest.fixture
def schema_file(tmp_path) -> Path:
    (tmp_path / "other.fbs").write_text("namespace a; table Other { on: bool = true; }")
    path = tmp_path / "root.fbs"
    path.write_text(SCHEMA)
    return path


def test_values_come_back(schema_file, tmp_path) -> None:
    value = {
        "kind": "ONE",
        "pair": {"x": -1, "y": 0.25},
        "any_type": "Named",
        "any": {"on": False},
        "leaves": [{"name": "é"}, {"name": ""}],
        "bytes": [1, 2, 255],
        "maybe": 0,
        "ratio": float("inf"),
    }
    (tmp_path / "value.json").write_text(json.dumps(value))
    _flatc_compile(str(tmp_path), str(schema_file), str(tmp_path / "value.json"))
    written = tmp_path / "value.tst"
    assert written.read_bytes()[4:8] == b"TEST"
    schema = read_schema(schema_file)
    assert read_binary(schema, written.read_bytes()) == value
    assert read_binary(schema, compile_json(schema, {})) == {"kind": "TWO", "any_type": "NONE", "ratio": 0.5}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"nothing": 1}, "Root has no field 'nothing'"),
        ({"old": 1}, "Root has no field 'old'"),
        ({"leaves": [{}]}, "Leaf: field 'name' is required"),
        ({"kind": "THREE"}, "Kind has no value 'THREE'"),
        ({"bytes": [256]}, "256 is no ubyte"),
        ({"pair": {"x": 1}}, "Pair: field 'y' is missing"),
        ({"any": {}}, "any_type is missing"),
        ({"maybe": 1.5}, "1.5 is no int"),
    ],
)
def test_values_that_do_not_fit_are_refused(schema_file, value, text) -> None:
    with pytest.raises(SchemaError, match=text):
        compile_json(read_schema(schema_file), value)


def test_damaged_data_is_refused(schema_file) -> None:
    schema = read_schema(schema_file)
    good = compile_json(schema, {"leaves": [{"name": "abc"}], "bytes": [1] * 40})
    refused = 0
    for length in range(len(good)):
        try:
            read_binary(schema, good[:length])
        except SchemaError:
            refused += 1
    # What is left after the last byte that says something is padding.
    assert refused >= len(good) - 4
    with pytest.raises(SchemaError, match="file identifier"):
        read_binary(schema, good[:4] + b"XXXX" + good[8:])


def test_the_schema_in_the_package_is_the_repository_s() -> None:
    folder = ROOT / "python/pteron/compat/flatc/schemas"
    for path in folder.iterdir():
        assert path.read_text() == (ROOT / "schema" / path.name).read_text()
