"""All methods of a program → one `schema.Program`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils._pytree import tree_flatten

from pteron.exir.edge.tensor_spec import TensorSpec, dim_order_of_value
from pteron.exir.emit.debug_table import DEBUG_KEY, SourceFiles
from pteron.exir.emit.external_tags import ExternalTags
from pteron.exir.emit.interface import INTERFACE_KEY, output_names
from pteron.exir.emit.method_emitter import MethodEmitter
from pteron.exir.emit.operator_origins import operator_origins
from pteron.exir.emit.portable_tree import tree_text
from pteron.exir.emit.shared_data import BorrowedWeights, SharedData
from pteron.exir.emit.value_table import ValueTable
from pteron.exir.schema import Buffer, Chain, ContainerMetadata, DataFileEntry, ExecutionPlan, Program


def constant_method(name: str, value: Any, shared: SharedData) -> tuple[ExecutionPlan, dict[str, Any]]:
    """(plan, interface) of a method without instructions that returns `value`.

    `value`: tensor, None, bool, int, float or string, or a nest of lists, tuples and dicts of them. Raises
    `ExportError` for anything else.
    """
    leaves, tree = tree_flatten(value)
    table = ValueTable()
    outputs = []
    names = output_names(tree, len(leaves))
    interface: list[dict[str, Any]] = []
    for leaf, leaf_name in zip(leaves, names, strict=True):
        entry: dict[str, Any] = {"name": leaf_name}
        if isinstance(leaf, torch.Tensor):
            stored = (
                leaf.detach()
                if dim_order_of_value(leaf) != tuple(range(leaf.dim()))
                else leaf.detach().contiguous()
            )
            spec = TensorSpec.from_value(stored)
            spec.is_constant = True
            outputs.append(table.add_tensor(spec, data_buffer_idx=shared.constant(stored)))
            entry["shape"] = list(stored.shape)
        else:
            outputs.append(table.add_literal(leaf))
        interface.append(entry)
    plan = ExecutionPlan(
        name=name,
        container_meta_type=ContainerMetadata("", tree_text(tree)),
        values=table.values,
        inputs=[],
        outputs=outputs,
        chains=[Chain(inputs=[], outputs=[], instructions=[])],
        operators=[],
        delegates=[],
        non_const_buffer_sizes=[0, 0],
    )
    return plan, {"inputs": [], "outputs": interface}


@dataclass
class EmittedProgram:
    """A program as objects, with the maps that tools use.

    `weights`: the tensors whose bytes the program borrows.
    `data_files`: name of a data file → its entries.
    `debug_handle_map`: method → instruction index → debug handle, or list of a delegate's own handles.
    `delegate_map`: method → instruction index → backend name and its debug ids.
    `instruction_id_to_num_outs_map`: method → index of a delegate call → number of its results.
    """

    program: Program
    weights: BorrowedWeights
    data_files: dict[str, list[DataFileEntry]] = field(default_factory=dict)
    debug_handle_map: dict[str, dict[int, int | list[int]]] = field(default_factory=dict)
    delegate_map: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)
    instruction_id_to_num_outs_map: dict[str, dict[int, int]] = field(default_factory=dict)

    @property
    def method_to_delegate_debug_id_map(self) -> dict[str, dict[int, dict[str, Any]]]:
        """`delegate_map`, as ExecuTorch calls it."""
        return self.delegate_map

    @property
    def mutable_data(self) -> list[Buffer] | None:
        """First contents of buffers that methods update; None where all of them are zeros or there are
        none.
        """
        return self.program.mutable_data if len(self.program.mutable_data) > 1 else None

    @property
    def external_constant_buffer(self) -> list[bytes]:
        """The bytes of the entries of data files, equal ones once."""
        return list(self._external[0])

    @property
    def external_constant_map(self) -> dict[str, dict[str, int]]:
        """Name of a data file → key → index into `external_constant_buffer`."""
        return self._external[1]

    @property
    def _external(self) -> tuple[dict[bytes, int], dict[str, dict[str, int]]]:
        numbers: dict[bytes, int] = {}
        files = {
            tag: {entry.key: numbers.setdefault(bytes(entry.data), len(numbers)) for entry in entries}
            for tag, entries in self.data_files.items()
        }
        return numbers, files


def emit_program(
    methods: Mapping[str, tuple[ExportedProgram, Sequence[int]]],
    constant_methods: Mapping[str, Any],
    *,
    has_scoped_data: bool = True,
    external: ExternalTags = ExternalTags(),  # noqa: B008 -- immutable
    emit_stacktrace: bool = False,
) -> EmittedProgram:
    """Emit planned methods (program, memory sizes in bytes), sorted by name, then the constant methods.

    `has_scoped_data`: the target's runtime knows named data that one delegate alone sees.
    `external`: which tensors go to data files.
    `emit_stacktrace`: keep the stack of each instruction in its chain.
    Raises `ExportError` where something cannot be stored in a program file.
    """
    program = Program()
    shared = SharedData(program)
    files = SourceFiles()
    emitted = EmittedProgram(program, weights=shared.weights)
    interfaces: dict[str, Any] = {}
    debug: dict[str, Any] = {}
    for name in sorted(methods):
        exported, memory_sizes = methods[name]
        method = MethodEmitter(
            name, exported, memory_sizes, shared, files, external, emit_stacktrace=emit_stacktrace
        ).emit()
        program.execution_plan.append(method.plan)
        interfaces[name] = method.interface
        debug[name] = method.debug
        emitted.debug_handle_map[name] = method.debug_handles
        emitted.delegate_map[name] = method.delegates
        emitted.instruction_id_to_num_outs_map[name] = method.delegate_results
    for name, value in constant_methods.items():
        plan, interfaces[name] = constant_method(name, value, shared)
        program.execution_plan.append(plan)
    shared.place_delegate_data(is_scoped=has_scoped_data)
    interface: dict[str, Any] = {"version": 1, "methods": interfaces}
    origins = operator_origins(operator_names(program))
    if origins:
        interface["operators"] = origins
    shared.named(INTERFACE_KEY, _json(interface), 1)
    emitted.data_files = shared.data_files.entries()
    # Last, so that stripping it shortens the file.
    shared.named(DEBUG_KEY, _json({"version": 1, "files": files.files, "methods": debug}), 1)
    return emitted


def operator_names(program: Program) -> set[str]:
    """Names of the operators that the methods of `program` call, `namespace::operator.overload`."""
    operators = (operator for plan in program.execution_plan for operator in plan.operators)
    return {".".join(part for part in (each.name, each.overload) if part) for each in operators}


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
