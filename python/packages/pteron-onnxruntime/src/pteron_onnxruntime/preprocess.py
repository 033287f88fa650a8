"""The compile half: subgraphs become ONNX models, and their constants named data."""

from __future__ import annotations

import hashlib

import onnx
import torch
from torch.export.exported_program import ExportedProgram

from pteron.exir.backend.backend_details import BackendDetails, PreprocessResult
from pteron.exir.backend.compile_spec import CompileSpec
from pteron.exir.backend.delegate_mapping_builder import DelegateMappingBuilder
from pteron.exir.backend.named_data_store import NamedDataStore
from pteron_onnxruntime.blob import BACKEND, Constant, Head, State, written
from pteron_onnxruntime.convert import Converted, converted_program
from pteron_onnxruntime.graph import content_of
from pteron_onnxruntime.settings import settings_of

_ALIGNMENT = 64
#: Constants above this many bytes lie beside the model, once for all partitions and methods.
_LARGEST_INSIDE = 1024


class PteronOnnxRuntimeBackend(BackendDetails):
    """Compiles partitions for ONNX Runtime. A constant that several read is in the file once."""

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        """One partition."""
        settings_of({spec.key: bytes(spec.value) for spec in compile_specs}, {})  # refused now, not at load
        converted, store = converted_program(edge_program), NamedDataStore()
        model, outside = converted.graph.model(_LARGEST_INSIDE)
        head = Head(
            library=onnx.__version__,
            constants=tuple(
                Constant(name, _stored(store, tensor), _name(tensor), tuple(tensor.shape))
                for name, tensor in outside.items()
            ),
            states=tuple(
                State(name, _name(tensor), tuple(tensor.shape), _stored(store, tensor))
                for name, tensor in converted.states.items()
            ),
            inputs=tuple(_name(value) for value in converted.inputs),
            outputs=tuple(_name(value) for value in converted.outputs),
            extents=_extents(converted),
        )
        builder = DelegateMappingBuilder()
        for name, handle in converted.debug_handles.items():
            builder.insert_delegate_mapping_entry(handles=handle, identifier=name)
        return PreprocessResult(
            written(head, model.SerializeToString(deterministic=True)),
            builder.get_delegate_mapping(),
            store.get_named_data_store_output(),
        )


assert PteronOnnxRuntimeBackend.__name__ == BACKEND


def _stored(store: NamedDataStore, tensor: torch.Tensor) -> str:
    """The key of a tensor's bytes. Named after them, so that it means the same in every program."""
    content = content_of(tensor)
    key = f"onnxruntime/{hashlib.sha256(content).hexdigest()}"
    store.add_named_data(key, content, alignment=_ALIGNMENT)
    return key


def _name(value: object) -> str:
    return str(value.dtype).removeprefix("torch.") if isinstance(value, torch.Tensor) else "int64"


def _extents(converted: Converted) -> tuple[tuple[int | tuple[int, int] | None, ...], ...]:
    """Where the extents of results are known from: they are bound in place if all are."""
    known: dict[str, tuple[int, int]] = {}
    for at, value in enumerate(converted.inputs):
        for dim, extent in enumerate(converted.graph.dims(value)):
            if isinstance(extent, str):
                known.setdefault(extent, (at, dim))
    return tuple(
        tuple(d if isinstance(d, int) else known.get(d) for d in converted.graph.dims(value))
        for value in converted.outputs
    )
