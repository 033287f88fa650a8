"""Bundled programs between objects, JSON and files, by ExecuTorch's names."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from pteron.compat import flatc
from pteron.compat.bundled_program import schema
from pteron.compat.exir.dataclass_json import _DataclassEncoder, _json_to_dataclass
from pteron.compat.flatc.compile_json import compile_json
from pteron.compat.flatc.read_binary import read_binary
from pteron.compat.flatc.schema import Schema, read_schema


@cache
def _schema() -> Schema:
    return read_schema(Path(flatc.__file__).parent / "schemas" / "bundled_program.fbs")


def serialize_from_bundled_program_to_json(bundled_program: schema.BundledProgram) -> str:
    """The objects as JSON."""
    return json.dumps(bundled_program, cls=_DataclassEncoder)


def deserialize_from_json_to_bundled_program(program_json: str | bytes) -> schema.BundledProgram:
    """The objects that JSON describes."""
    found: schema.BundledProgram = _json_to_dataclass(json.loads(program_json), schema.BundledProgram)
    return found


def convert_to_flatbuffer(program_json: str) -> bytes:
    """JSON of a bundled program as the bytes of its file. ValueError where it does not fit the schema."""
    return compile_json(_schema(), json.loads(program_json))


def deserialize_from_flatbuffer_to_bundled_program(flatbuffer: bytes) -> schema.BundledProgram:
    """The objects of a file. ValueError where it is damaged."""
    members = read_binary(_schema(), bytes(flatbuffer), as_objects=True)
    found: schema.BundledProgram = _json_to_dataclass(members, schema.BundledProgram)
    return found


def convert_from_flatbuffer(program_flatbuffer: bytes) -> bytes:
    """A file as JSON. ValueError where it is damaged."""
    found = deserialize_from_flatbuffer_to_bundled_program(program_flatbuffer)
    return serialize_from_bundled_program_to_json(found).encode()
