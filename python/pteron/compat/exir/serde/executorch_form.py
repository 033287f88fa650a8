"""Programs as ExecuTorch's own serializer writes them, for records that its tools read.

Both sides write the JSON of PyTorch's serializer. ExecuTorch names edge operators by its module path, and a
node's debug handle is a text in its metadata; this package notes both in what PyTorch keeps (`plain_graph`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import torch._export.serde.serialize as torch_serde
from torch._export.serde.schema import SCHEMA_VERSION
from torch._export.serde.serialize import SerializedArtifact
from torch._export.verifier import TrainingIRVerifier, Verifier, load_verifier
from torch.export import ExportedProgram

from pteron.compat.exir.serde.plain_graph import from_plain, to_plain
from pteron.compat.exir.serde.torch_artifact import (
    deserialize_torch_artifact,
    fake_tensors_allowed,
    serialize_torch_artifact,
)
from pteron.errors import ExportError
from pteron.exir.edge.verify import EdgeDialectVerifier

_EDGE = "executorch.exir.dialects.edge.ops."
_PLAIN = "torch.ops."
_NOTE, _CUSTOM, _HANDLE = "pteron", "custom", "debug_handle"
#: The version that ExecuTorch writes, and what PyTorch has added since: ExecuTorch refuses keys that it does
#: not know.
_VERSION = {"major": 5, "minor": 4}
_ADDED = {
    "forward_arg_names",
    "guards_code",
    "is_hop_single_tensor_return",
    "sym_float_values",
    "torch_version",
    "treespec_namedtuple_fields",
}
#: Keys of which the members have names of the model.
_BY_NAME = ("tensor_values", "sym_int_values", "sym_bool_values", "custom_obj_values", "metadata")


def to_executorch_form(program: ExportedProgram) -> SerializedArtifact:
    """A captured program, or one in the edge dialect without delegates, as bytes.

    Raises:
        ExportError: the program has delegates, or was planned.
    """
    plain = to_plain(program)
    if plain.lowered or program.dialect not in ("TRAINING", "ATEN", EdgeDialectVerifier.dialect):
        raise ExportError("only captured programs and edge programs without delegates have ExecuTorch's form")
    plain.program._verifiers = [TrainingIRVerifier]
    written = torch_serde.serialize(
        plain.program, serialize_state_dict=False, serialize_constants=False, serialize_example_inputs=False
    )
    form: dict[str, Any] = _as_of_old(json.loads(written.exported_program))
    for node in _nodes(form["graph_module"]):
        _write_node(node)
    form["schema_version"] = _VERSION
    form["dialect"] = program.dialect
    form["verifiers"] = [program.dialect]
    return SerializedArtifact(
        json.dumps(form).encode(),
        serialize_torch_artifact(dict(program.state_dict)),
        serialize_torch_artifact(dict(program.constants)),
        serialize_torch_artifact(program.example_inputs),
    )


def from_executorch_form(artifact: SerializedArtifact) -> ExportedProgram:
    """The program that ExecuTorch's serializer, or `to_executorch_form`, wrote.

    Raises:
        ExportError: the bytes are damaged, or the program has delegates.
    """
    try:
        form = json.loads(bytes(artifact.exported_program))
        form.pop("dialect", None)  # ExecuTorch says ATEN of edge programs too
        dialect = str(form["verifiers"][0])
        for node in _nodes(form["graph_module"]):
            _read_node(node)
        form["verifiers"] = [TrainingIRVerifier.dialect]
        form["schema_version"] = {"major": SCHEMA_VERSION[0], "minor": SCHEMA_VERSION[1]}
        with fake_tensors_allowed():
            parts = [
                deserialize_torch_artifact(part)
                for part in (artifact.state_dict, artifact.constants, artifact.example_inputs)
            ]
        read = torch_serde.deserialize(SerializedArtifact(json.dumps(form).encode(), *parts))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, torch_serde.SerializeError) as error:
        raise ExportError(f"the bytes of a program cannot be read: {error}") from error
    from_plain(read, [])
    verifier: type[Verifier] = (
        EdgeDialectVerifier if dialect == EdgeDialectVerifier.dialect else load_verifier(dialect)
    )
    read._verifiers = [verifier]
    return read


def _nodes(graph_module: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The nodes of a graph and of the graphs that they call."""
    yield from _nodes_of_graph(graph_module["graph"])


def _nodes_of_graph(graph: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for node in graph["nodes"]:
        yield node
        for given in node["inputs"]:
            inner = given["arg"].get("as_graph")
            if inner is not None:
                yield from _nodes_of_graph(inner["graph"])


def _as_of_old(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_of_old(each) for each in value]
    if not isinstance(value, dict):
        return value
    added = set(_ADDED)
    if "arg" in value and "name" in value:
        added.add("kind")
    if "signature" in value and "graph" in value:
        added.add("metadata")
    return {
        key: each if key in _BY_NAME else _as_of_old(each) for key, each in value.items() if key not in added
    }


def _write_node(node: dict[str, Any]) -> None:
    custom = json.loads(node["metadata"].pop(_CUSTOM, "{}"))
    note = custom.pop(_NOTE, {})
    if custom:
        node["metadata"][_CUSTOM] = json.dumps(custom)
    if _HANDLE in note:
        node["metadata"][_HANDLE] = json.dumps(note[_HANDLE])
    if "edge" in note:
        node["target"] = _EDGE + ".".join(note["edge"])


def _read_node(node: dict[str, Any]) -> None:
    note: dict[str, Any] = {}
    handle = node["metadata"].pop(_HANDLE, None)
    if handle is not None:
        note[_HANDLE] = json.loads(handle)
    target = node["target"]
    if "executorch_call_delegate" in target:
        raise ExportError("a program of ExecuTorch with delegates cannot be read")
    if target.startswith(_EDGE):
        name = target.removeprefix(_EDGE)
        note["edge"] = name.split(".", 2)
        node["target"] = _PLAIN + name
    if note:
        custom = json.loads(node["metadata"].get(_CUSTOM, "{}"))
        node["metadata"][_CUSTOM] = json.dumps({**custom, _NOTE: note})
