"""Bundled programs as objects, JSON and files."""

from __future__ import annotations

import pytest
import torch
from pteron.compat.executorch.devtools import BundledProgram
from pteron.compat.executorch.devtools.bundled_program import schema
from pteron.compat.executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
from pteron.compat.executorch.devtools.bundled_program.serialize import (
    convert_from_flatbuffer,
    convert_to_flatbuffer,
    deserialize_from_flatbuffer_to_bundled_program,
    deserialize_from_json_to_bundled_program,
    serialize_from_bundled_program_to_flatbuffer,
    serialize_from_bundled_program_to_json,
)

from pteron import bundled
from pteron.errors import ExportError
from pteron.exir import to_edge
from pteron.runtime import Program


class Scaled(torch.nn.Module):
    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        return x * n


def _bundle() -> BundledProgram:
    x = torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)
    program = to_edge(torch.export.export(Scaled(), (x, 2))).to_executorch()
    return BundledProgram(program, [MethodTestSuite("forward", [MethodTestCase((x, 2), x * 2)])])


def test_objects_come_back_from_files_and_json() -> None:
    bundle = _bundle()
    objects = bundle.serialize_to_schema()
    [suite] = objects.method_test_suites
    [case] = suite.test_cases
    tensor, number = (value.val for value in case.inputs)
    assert (suite.method_name, objects.version) == ("forward", 2)
    assert isinstance(tensor, schema.Tensor)
    assert (tensor.sizes, tensor.dim_order, len(tensor.data)) == ([2, 3, 4, 5], [0, 2, 3, 1], 480)
    assert number == schema.Int(2)
    file = serialize_from_bundled_program_to_flatbuffer(bundle)
    assert deserialize_from_flatbuffer_to_bundled_program(file) == objects
    text = serialize_from_bundled_program_to_json(objects)
    assert deserialize_from_json_to_bundled_program(text) == objects
    assert deserialize_from_json_to_bundled_program(convert_from_flatbuffer(file)) == objects


def test_a_file_made_of_objects_runs() -> None:
    objects = _bundle().serialize_to_schema()
    file = convert_to_flatbuffer(serialize_from_bundled_program_to_json(objects))
    assert file[4:8] == b"BP08"
    assert deserialize_from_flatbuffer_to_bundled_program(file) == objects
    assert bundled.verify(_loaded(file), "forward", 0, 1e-6, 1e-6)


def _loaded(file: bytes) -> Program:
    import pteron

    return pteron.load(file)


def test_cases_that_do_not_fit_are_both_kinds_of_error() -> None:
    program = to_edge(torch.export.export(torch.nn.ReLU(), (torch.ones(2),))).to_executorch()
    wrong = [MethodTestSuite("forward", [MethodTestCase((torch.ones(2, dtype=torch.int32),))])]
    with pytest.raises(AssertionError, match="another type than in the program") as refused:
        BundledProgram(program, wrong)
    assert isinstance(refused.value, ExportError)


def test_a_damaged_file_is_refused() -> None:
    file = serialize_from_bundled_program_to_flatbuffer(_bundle())
    with pytest.raises(ValueError, match=r"."):
        deserialize_from_flatbuffer_to_bundled_program(file[:40])
