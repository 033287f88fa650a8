"""One place in memory for a buffer in all methods that use it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from pteron.errors import ExportError
from pteron.exir.edge.tensor_spec import TensorSpec
from pteron.exir.memory.lifetime import align_up
from pteron.exir.memory.spec_lifetimes import placeholder_roles

SHARED_MEMORY_ID = 2
"""The memory in which shared buffers lie, in every method at the same offset; ExecuTorch uses the same."""


@dataclass(frozen=True)
class _Use:
    method: str
    spec: TensorSpec
    value: torch.Tensor
    is_updated: bool


def share_mutable_buffers(programs: Mapping[str, ExportedProgram], alignment: int) -> int:
    """Place the buffers that `programs` update in memory `SHARED_MEMORY_ID`, in place; its size in bytes.

    `programs`: methods by name, with specs and write-backs. Buffers are known by name: one that is updated by
    a method is state in all methods that read it. `alignment`: of every buffer, in bytes.

    Raises `ExportError` where buffers of one name differ in dtype, shape, memory order or initial value.
    """
    uses: dict[str, list[_Use]] = {}
    for method, program in programs.items():
        for name, use in _buffers(method, program):
            uses.setdefault(name, []).append(use)
    end = 0
    for name in sorted(uses):
        if not any(use.is_updated for use in uses[name]):
            continue
        first = uses[name][0]
        for use in uses[name]:
            _require_alike(name, first, use)
            use.spec.is_state = True
            use.spec.memory_id, use.spec.memory_offset = SHARED_MEMORY_ID, end
        end = align_up(end + first.spec.nbytes(), alignment)
    return end


def _buffers(method: str, program: ExportedProgram) -> list[tuple[str, _Use]]:
    state = placeholder_roles(program).state
    placeholders = [node for node in program.graph_module.graph.nodes if node.op == "placeholder"]
    found = []
    for signature, node in zip(program.graph_signature.input_specs, placeholders, strict=True):
        spec = node.meta.get("spec")
        if signature.kind is not InputKind.BUFFER or not isinstance(spec, TensorSpec) or not node.users:
            continue
        name = str(signature.target)
        value = program.state_dict.get(name, program.constants.get(name))
        if isinstance(value, torch.Tensor):
            found.append((name, _Use(method, spec, value, spec in state)))
    return found


def _require_alike(name: str, first: _Use, use: _Use) -> None:
    one, other = first.spec, use.spec
    what = None
    if (one.dtype, one.shape, one.dim_order) != (other.dtype, other.shape, other.dim_order):
        what = f"is {one.dtype} {list(one.shape)} in one and {other.dtype} {list(other.shape)} in the other"
    elif first.value.data_ptr() != use.value.data_ptr() and not torch.equal(first.value, use.value):
        what = "has another initial value in each"
    if what is not None:
        raise ExportError(
            f"buffer {name!r} cannot be shared by methods {first.method!r} and {use.method!r}: it {what}",
            method=use.method,
            argument=name,
            hint="export both methods from one model, or give buffers that are not the same different names",
        )
