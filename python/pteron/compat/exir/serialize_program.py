"""`serialize_for_executorch`: the objects of a program as its file and its data files."""

from __future__ import annotations

from dataclasses import replace

from pteron.compat.exir.cord import Cord
from pteron.compat.exir.data_serializer import DataPayload, DataSerializer
from pteron.compat.exir.emit import EmitterOutput
from pteron.compat.exir.pte_file import PTEFile, serialize_pte_binary
from pteron.exir.backend.named_data_store import NamedDataStore, NamedDataStoreOutput
from pteron.exir.config.backend_config import ExecutorchBackendConfig
from pteron.exir.schema import EXTERNAL, Program, ScalarType, Tensor, TensorLayout

__all__ = ["serialize_for_executorch"]


def serialize_for_executorch(
    emitter_output: EmitterOutput,
    config: ExecutorchBackendConfig,
    data_serializer: DataSerializer,
    named_data_store: NamedDataStoreOutput | None = None,
) -> tuple[Cord, dict[str, Cord]]:
    """(the program file, the data files by tag).

    Args:
        emitter_output: the program, and the constants that data files are to hold.
        config: how the program file is laid out.
        data_serializer: the format of data files.
        named_data_store: what delegates keep by name, in the program file or in data files.

    Raises:
        ValueError: one name stands for different bytes.
    """
    named = named_data_store or NamedDataStoreOutput()
    pte = serialize_pte_binary(
        PTEFile(
            program=emitter_output.program,
            mutable_data=emitter_output.mutable_data,
            named_data=replace(named, external_data={}) if named.pte_data else None,
        ),
        extract_delegate_segments=config.extract_delegate_segments,
        segment_alignment=config.segment_alignment,
        constant_tensor_alignment=config.constant_tensor_alignment,
        delegate_alignment=config.delegate_alignment,
    )
    if emitter_output.external_constant_map:
        named = _with_constants(emitter_output, named)
    return pte, {
        tag: data_serializer.serialize(DataPayload(named.buffers, entries))
        for tag, entries in named.external_data.items()
    }


def _with_constants(emitted: EmitterOutput, named: NamedDataStoreOutput) -> NamedDataStoreOutput:
    """The constants of the program that data files hold, and then what delegates keep."""
    layouts = _layouts(emitted.program)
    store = NamedDataStore()
    for tag, numbers in (emitted.external_constant_map or {}).items():
        for name, number in numbers.items():
            store.add_named_data(
                name,
                emitted.external_constant_buffer[number],
                external_tag=tag,
                tensor_layout=layouts.get(name),
            )
    store.merge_named_data_store(named)
    return store.get_named_data_store_output()


def _layouts(program: Program) -> dict[str, TensorLayout]:
    """Name of a tensor in a data file → what the program says it is."""
    found = {}
    for plan in program.execution_plan:
        for value in plan.values:
            tensor = value.val
            info = tensor.extra_tensor_info if isinstance(tensor, Tensor) else None
            if isinstance(tensor, Tensor) and info is not None and info.location == EXTERNAL:
                layout = TensorLayout(
                    ScalarType(tensor.scalar_type), list(tensor.sizes), list(tensor.dim_order)
                )
                found[str(info.fully_qualified_name)] = layout
    return found
