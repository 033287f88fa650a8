"""`emit_program`: planned programs as the objects of a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch.export import ExportedProgram

from pteron.compat.exir.error import ExportError, ExportErrorType
from pteron.exir.emit.emit_program import emit_program as emit_planned
from pteron.exir.memory.memory_planning_pass import memory_sizes
from pteron.exir.schema import Buffer, Program


@dataclass
class EmitterOutput:
    """A program as objects, with the maps that tools use: method → instruction index → debug handle,
    delegate and its debug ids, number of outputs.
    """

    program: Program
    debug_handle_map: dict[str, dict[int, int | list[int]]] = field(default_factory=dict)
    method_to_delegate_debug_id_map: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)
    instruction_id_to_num_outs_map: dict[str, dict[int, int]] = field(default_factory=dict)
    mutable_data: list[Buffer] | None = None
    external_constant_buffer: list[bytes] = field(default_factory=list)
    external_constant_map: dict[str, dict[str, int]] | None = None


def emit_program(
    methods: ExportedProgram | Mapping[str, ExportedProgram],
    emit_stacktrace: bool = False,
    prim_getters: Mapping[str, Any] | None = None,
    emit_mutable_buffer_names: bool = False,
) -> EmitterOutput:
    """The objects of planned methods, which `ExecutorchProgramManager.exported_program` gives, and of
    methods that return a constant. Names of buffers are always in the program.

    Raises:
        ExportError: a method is no exported program, or no memory has been planned for it.
    """
    named = {"forward": methods} if isinstance(methods, ExportedProgram) else dict(methods)
    wrong = [name for name, program in named.items() if not isinstance(program, ExportedProgram)]
    if wrong:
        raise ExportError(
            ExportErrorType.INVALID_INPUT_TYPE,
            f"Did not receive ExportedProgram for the following methods {wrong}",
        )
    unplanned = [
        name for name, program in named.items() if "non_const_buffer_sizes" not in program.graph_module.meta
    ]
    if unplanned:
        raise ExportError(
            ExportErrorType.VIOLATION_OF_SPEC,
            f"No memory is planned for the methods {unplanned}: emit what "
            "to_executorch().exported_program() gives",
        )
    emitted = emit_planned(
        {name: (program, memory_sizes(program)) for name, program in named.items()},
        prim_getters or {},
        emit_stacktrace=emit_stacktrace,
    )
    mutable = emitted.program.mutable_data
    return EmitterOutput(
        program=emitted.program,
        debug_handle_map=emitted.debug_handle_map,
        method_to_delegate_debug_id_map=emitted.delegate_map,
        instruction_id_to_num_outs_map=emitted.instruction_id_to_num_outs_map,
        mutable_data=mutable if len(mutable) > 1 else None,
    )
