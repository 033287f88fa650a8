"""Would the runtime load this program? Asked before any byte of its weights is written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pteron.errors import PteronError
from pteron.exir.emit.emit_program import operator_names
from pteron.exir.emit.operator_origins import custom_operators
from pteron.exir.schema import BackendDelegateInlineData, ExecutionPlan, Program, Tensor
from pteron.exir.serialize.serialize_program import serialize_program

# What load reads of named data: names and ranges of inputs, source lines.
_READ_AT_LOAD = ("pteron.interface", "pteron.debug")


def check_load(program: Program, options: dict[str, Any]) -> list[PteronError]:
    """What load would refuse, at most one error per method, with the model's source line where it is known.

    The native loader builds every method of an outline of `program`: all values and instructions, without
    the bytes of constants and blobs. Custom operators count as ones with a kernel. Raises `ProgramError`
    where the table itself breaks the format.
    """
    from pteron import _native

    custom = custom_operators(operator_names(program))
    return _native.check_program(serialize_program(_outline(program), **options), custom)


def _outline(program: Program) -> Program:
    return Program(
        version=program.version,
        execution_plan=[_without_data(plan) for plan in program.execution_plan],
        backend_delegate_data=[BackendDelegateInlineData(b"") for _ in program.backend_delegate_data],
        named_data=[named for named in program.named_data if named.key in _READ_AT_LOAD],
    )


def _without_data(plan: ExecutionPlan) -> ExecutionPlan:
    """The plan with constants as tensors whose memory comes from elsewhere. Its delegates are of no backend,
    since load reads the payloads of some, which are not there; all its memory is the CPU's, since the runtime
    that the file is for may serve its devices.
    """
    values = []
    for value in plan.values:
        if isinstance(value.val, Tensor) and (value.val.data_buffer_idx or value.val.extra_tensor_info):
            value = replace(value, val=replace(value.val, data_buffer_idx=0, extra_tensor_info=None))
        values.append(value)
    delegates = [replace(delegate, id="outline") for delegate in plan.delegates]
    return replace(plan, values=values, delegates=delegates, non_const_buffer_device=None)
