"""The objects of a program as a program table and as files."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from pteron.compat.executorch.exir._serialize._cord import Cord
from pteron.compat.executorch.exir._serialize._dataclass import _json_to_dataclass
from pteron.compat.executorch.exir._serialize._flatbuffer_program import (
    _flatbuffer_to_program,
    _program_to_flatbuffer,
)
from pteron.compat.executorch.exir._serialize._program import _insert_flatbuffer_header
from pteron.compat.executorch.exir._serialize._serialize import serialize_for_executorch
from pteron.compat.executorch.exir._serialize.data_serializer import DataPayload, DataSerializer

import pteron
from pteron.exir import ExecutorchBackendConfig, ExecutorchProgramManager, to_edge
from pteron.exir.backend.named_data_store import DataEntry, NamedDataStoreOutput
from pteron.exir.schema import Buffer, DataFileEntry, ScalarType, TensorLayout
from pteron.exir.serialize.serialize_program import lay_out_data_file


class _DataFiles(DataSerializer):
    """Writes data files as this package does."""

    def serialize(self, data: DataPayload) -> Cord:
        entries = [
            DataFileEntry(name, bytes(data.buffers[each.buffer_index]), each.alignment, each.tensor_layout)
            for name, each in data.named_data.items()
        ]
        return Cord(lay_out_data_file(entries).to_bytes())

    def deserialize(self, blob: Cord) -> DataPayload:
        raise NotImplementedError


def _linear(**options: bool) -> tuple[torch.nn.Module, ExecutorchProgramManager]:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 4)
    edge = to_edge(torch.export.export(model, (torch.ones(2, 3),)))
    return model, edge.to_executorch(ExecutorchBackendConfig(**options))


def test_objects_become_a_program_file_and_data_files() -> None:
    model, program = _linear(external_constants=True)
    emitted = program._emitter_output
    named = NamedDataStoreOutput([b"mine"], {}, {"other": {"key": DataEntry(0, 4)}})
    file, data = serialize_for_executorch(emitted, ExecutorchBackendConfig(), _DataFiles(), named)
    assert set(data) == {"_default_external_constant", "other"}
    loaded = pteron.load(bytes(file), data={name: bytes(each) for name, each in data.items()})
    x = torch.rand(2, 3)
    [result] = loaded.load_method("forward").execute([x.numpy()])
    assert np.allclose(result, model(x).detach().numpy(), atol=1e-6)


def test_without_constants_outside_there_are_no_data_files() -> None:
    _, program = _linear()
    file, data = serialize_for_executorch(program._emitter_output, ExecutorchBackendConfig(), _DataFiles())
    assert data == {}
    assert pteron.load(bytes(file)).methods == ("forward",)


def test_a_program_table_comes_back_with_everything_in_line() -> None:
    _, made = _linear()
    program = replace(made.executorch_program, named_data=[])
    for each in program.constant_buffer:
        each.storage = bytes(each.storage)
    result = _program_to_flatbuffer(program, constant_tensor_alignment=64)
    assert result.max_alignment == 64
    read = _flatbuffer_to_program(result.data)
    assert read.execution_plan == program.execution_plan
    assert read.constant_buffer == program.constant_buffer
    at = result.data.find(program.constant_buffer[1].storage)
    assert at % 64 == 0
    with pytest.raises(ValueError, match="expected a power of two"):
        _program_to_flatbuffer(program, delegate_alignment=3)
    with pytest.raises(ValueError, match="lie in segments"):
        _program_to_flatbuffer(replace(program, mutable_data=[Buffer(b""), Buffer(b"1234")]))


def test_element_types_are_read_by_name_and_by_number() -> None:
    for written in ("FLOAT", 6):
        text = json.dumps({"scalar_type": written, "sizes": [2], "dim_order": [0]})
        assert _json_to_dataclass(json.loads(text), TensorLayout) == TensorLayout(ScalarType.FLOAT, [2], [0])


def test_a_header_goes_behind_the_file_identifier() -> None:
    data = (8).to_bytes(4, "little") + b"FT01" + b"table"
    assert _insert_flatbuffer_header(data, "FT..", b"head") == b"\x0c\0\0\0FT01headtable"
    with pytest.raises(ValueError, match="does not match pattern"):
        _insert_flatbuffer_header(data, "ET..", b"head")
    with pytest.raises(ValueError, match="length 3 < 8"):
        _insert_flatbuffer_header(b"abc", "FT..", b"")
