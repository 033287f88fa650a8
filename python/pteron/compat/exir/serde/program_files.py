"""Programs of any stage as bytes and files: what PyTorch's serializer writes, and what it has no word for."""

from __future__ import annotations

import base64
import json
import os
import zipfile
from collections.abc import Mapping, MutableMapping
from typing import IO, Any

import torch._export.serde.serialize as torch_serde
from torch._export.serde.serialize import SerializedArtifact
from torch._export.verifier import TrainingIRVerifier, load_verifier
from torch.export import ExportedProgram

from pteron.compat.exir.serde.plain_graph import from_plain, to_plain
from pteron.compat.exir.serde.torch_artifact import (
    deserialize_torch_artifact,
    fake_tensors_allowed,
    serialize_torch_artifact,
)
from pteron.errors import ExportError
from pteron.exir.backend.compile_spec import CompileSpec
from pteron.exir.backend.lowered_backend_module import LoweredBackendModule
from pteron.exir.backend.named_data_store import DataEntry, NamedDataStoreOutput, content_of
from pteron.exir.schema import TensorLayout

_VERSION = 1
_PARTS = {
    "exported_program": "serialized_exported_program.json",
    "state_dict": "serialized_state_dict.pt",
    "constants": "serialized_constants.pt",
    "example_inputs": "serialized_example_inputs.pt",
}
_EXTRA = "extra_files/"


def serialize(
    exported_program: ExportedProgram, opset_version: dict[str, int] | None = None
) -> SerializedArtifact:
    """A program as bytes: of `torch.export`, in the edge dialect with its delegates, or planned.

    Specs and memory plans are not kept: what is read is lowered again. Raises `SerializeError` of PyTorch
    where a node or value cannot be written.
    """
    plain = to_plain(exported_program)
    dialects = [verifier.dialect for verifier in exported_program.verifiers]
    plain.program._verifiers = [TrainingIRVerifier]  # takes operators that write, as planned programs have
    written = torch_serde.serialize(
        plain.program,
        opset_version,
        serialize_state_dict=False,
        serialize_constants=False,
        serialize_example_inputs=False,
    )
    envelope = {
        "pteron": _VERSION,
        "dialects": dialects,
        "lowered_modules": [
            {"attribute": name, **_lowered_to_json(module)} for name, module in plain.lowered
        ],
        "program": json.loads(written.exported_program),
    }
    return SerializedArtifact(
        json.dumps(envelope).encode(),
        serialize_torch_artifact(dict(exported_program.state_dict)),
        serialize_torch_artifact(dict(exported_program.constants)),
        serialize_torch_artifact(exported_program.example_inputs),
    )


def deserialize(artifact: SerializedArtifact) -> ExportedProgram:
    """The program that `serialize` wrote. ExportError where it was not this `serialize`."""
    envelope = json.loads(bytes(artifact.exported_program))
    version = envelope.get("pteron") if isinstance(envelope, dict) else None
    if version != _VERSION:
        raise ExportError(
            "these are not the bytes of a program that pteron wrote",
            expected=f"version {_VERSION}",
            got="none" if version is None else str(version),
            hint="files of ExecuTorch's exir.save are read by ExecuTorch; save the program again with this "
            "package",
        )
    lowered = [(str(each["attribute"]), _lowered_from_json(each)) for each in envelope["lowered_modules"]]
    with fake_tensors_allowed():
        parts = [
            deserialize_torch_artifact(part)
            for part in (artifact.state_dict, artifact.constants, artifact.example_inputs)
        ]
    read = torch_serde.deserialize(SerializedArtifact(json.dumps(envelope["program"]).encode(), *parts))
    from_plain(read, lowered)
    read._verifiers = [load_verifier(dialect) for dialect in envelope["dialects"]]
    return read


def save(
    ep_save: ExportedProgram,
    f: str | os.PathLike[str] | IO[bytes],
    *,
    extra_files: Mapping[str, str] | None = None,
    opset_version: dict[str, int] | None = None,
) -> None:
    """Write a program of any stage to a file, which `load` reads.

    Args:
        ep_save: the program.
        f: the file's path, or an open binary file.
        extra_files: texts by name, which are kept in the file.
        opset_version: versions of operator sets by name, as for `torch.export.save`.
    """
    if not isinstance(ep_save, ExportedProgram):
        raise TypeError(f"save: expected an ExportedProgram, got {type(ep_save).__name__}")
    artifact = serialize(ep_save, opset_version)
    with zipfile.ZipFile(f, "w") as archive:
        for part, name in _PARTS.items():
            archive.writestr(name, getattr(artifact, part))
        archive.writestr("version", str(_VERSION))
        for name, text in (extra_files or {}).items():
            archive.writestr(f"{_EXTRA}{name}", text.encode())


def load(
    f: str | os.PathLike[str] | IO[bytes], *, extra_files: MutableMapping[str, Any] | None = None
) -> ExportedProgram:
    """The program of a file that `save` wrote; `extra_files` is filled with the texts kept in it.

    Raises:
        ExportError: a part is missing, or the file is not of this package.
    """
    with zipfile.ZipFile(f) as archive:
        names = archive.namelist()
        missing = [name for name in _PARTS.values() if name not in names]
        if missing:
            raise ExportError(f"load: the file has no {missing[0]!r}", expected="a file of save")
        artifact = SerializedArtifact(**{part: archive.read(name) for part, name in _PARTS.items()})
        if extra_files is not None:
            for name in names:
                if name.startswith(_EXTRA):
                    extra_files[name.removeprefix(_EXTRA)] = archive.read(name).decode()
    return deserialize(artifact)


def _text(data: Any) -> str:
    return base64.b64encode(data).decode("ascii")


def _lowered_to_json(module: LoweredBackendModule) -> dict[str, Any]:
    original = serialize(module.original_module)
    handles = (module.meta or {}).get("debug_handle_map")
    return {
        "backend_id": module.backend_id,
        "processed_bytes": _text(module.processed_bytes),
        "compile_specs": [[spec.key, _text(bytes(spec.value))] for spec in module.compile_specs],
        "original_module": {part: _text(getattr(original, part)) for part in _PARTS},
        "named_data": _named_data_to_json(module.named_data_store_output),
        "debug_handle_map": None
        if not isinstance(handles, Mapping)
        else [
            [key, list(value) if isinstance(value, (list, tuple, set)) else value]
            for key, value in handles.items()
        ],
    }


def _lowered_from_json(given: Mapping[str, Any]) -> LoweredBackendModule:
    parts = {part: base64.b64decode(given["original_module"][part]) for part in _PARTS}
    module = LoweredBackendModule(
        deserialize(SerializedArtifact(**parts)),
        given["backend_id"],
        base64.b64decode(given["processed_bytes"]),
        [CompileSpec(key, base64.b64decode(value)) for key, value in given["compile_specs"]],
        _named_data_from_json(given["named_data"]),
    )
    if given["debug_handle_map"] is not None:
        handles = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in given["debug_handle_map"]
        }
        module.meta = {"debug_handle_map": handles}
    return module


def _named_data_to_json(output: NamedDataStoreOutput | None) -> dict[str, Any] | None:
    if output is None:
        return None
    return {
        "buffers": [_text(bytes(content_of(buffer))) for buffer in output.buffers],
        "pte_data": _entries_to_json(output.pte_data),
        "external_data": {tag: _entries_to_json(each) for tag, each in output.external_data.items()},
    }


def _entries_to_json(entries: Mapping[str, DataEntry]) -> dict[str, Any]:
    return {key: [each.buffer_index, each.alignment, _layout_to_json(each)] for key, each in entries.items()}


def _layout_to_json(entry: DataEntry) -> list[Any] | None:
    layout = entry.tensor_layout
    return (
        None
        if layout is None
        else [int(layout.scalar_type), list(layout.sizes), [int(dim) for dim in layout.dim_order]]
    )


def _named_data_from_json(given: Mapping[str, Any] | None) -> NamedDataStoreOutput | None:
    if given is None:
        return None
    return NamedDataStoreOutput(
        [base64.b64decode(buffer) for buffer in given["buffers"]],
        _entries_from_json(given["pte_data"]),
        {tag: _entries_from_json(entries) for tag, entries in given["external_data"].items()},
    )


def _entries_from_json(given: Mapping[str, Any]) -> dict[str, DataEntry]:
    return {
        key: DataEntry(index, alignment, None if layout is None else TensorLayout(*layout))
        for key, (index, alignment, layout) in given.items()
    }
