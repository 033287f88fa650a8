"""One planned method → values and instructions."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec

from pteron.errors import ExportError
from pteron.exir.edge.control_flow import is_control_flow
from pteron.exir.edge.delegate_call import is_delegate_call, lowered_module_of
from pteron.exir.edge.edge_op_overload import emitted_name
from pteron.exir.edge.extent_bounds import extent_bounds
from pteron.exir.edge.gradient_outputs import result_structure
from pteron.exir.edge.memory_nodes import alloc, view
from pteron.exir.edge.source_location import source_location
from pteron.exir.edge.symbolic_ops import EMITTED_AS, is_symbolic_op
from pteron.exir.edge.tensor_spec import TensorSpec
from pteron.exir.emit.control_flow.emit_control_flow import emit_control_flow
from pteron.exir.emit.debug_table import SourceFiles, delegate_entry, handle_table
from pteron.exir.emit.external_tags import ExternalTags
from pteron.exir.emit.instruction_list import InstructionList
from pteron.exir.emit.interface import method_interface
from pteron.exir.emit.kernel_arguments import kernel_arguments
from pteron.exir.emit.portable_tree import tree_text
from pteron.exir.emit.shared_data import SharedData
from pteron.exir.emit.value_table import ValueTable
from pteron.exir.memory.memory_devices import memory_devices
from pteron.exir.schema import (
    INLINE,
    BackendDelegate,
    BackendDelegateDataReference,
    Chain,
    CompileSpec,
    ContainerMetadata,
    ExecutionPlan,
    Int,
    IntList,
)

VIEW_OPERATOR = ("executorch_prim::et_view", "default")


@dataclass
class EmittedMethod:
    """A method's plan and what tools want to know about its instructions.

    `debug_handles`: instruction index → debug handle, or for a delegate call the list of the delegate's own
    handles.
    `delegates`: instruction index → `{"name": backend, "delegate_map": {debug id: handles}}`.
    `delegate_results`: instruction index → number of results of a delegate call.
    """

    plan: ExecutionPlan
    interface: dict[str, Any]
    debug: dict[str, Any]
    debug_handles: dict[int, int | list[int]]
    delegates: dict[int, dict[str, Any]]
    delegate_results: dict[int, int]


class MethodEmitter:
    """Emits one method. Every argument of an operator becomes a value; values of nodes are shared."""

    def __init__(
        self,
        name: str,
        program: ExportedProgram,
        memory_sizes: Sequence[int],
        shared: SharedData,
        files: SourceFiles,
        external: ExternalTags,
        *,
        emit_stacktrace: bool = False,
    ) -> None:
        self._name = name
        self._program = program
        self._memory_sizes = list(memory_sizes)
        self._shared = shared
        self._files = files
        self._external = external
        self.table = ValueTable()
        self.code = InstructionList(keeps_frames=emit_stacktrace)
        self._delegates: list[BackendDelegate] = []
        self._stateful_delegates: dict[int, int] = {}
        self._delegate_buffers: dict[str, list[str]] = {}
        self._delegate_outputs: dict[str, int] = {}
        self._delegate_debug: dict[str, Any] = {}
        self._delegate_map: dict[int, dict[str, Any]] = {}
        self._delegate_results: dict[int, int] = {}

    def emit(self) -> EmittedMethod:
        """Walk the graph once. Raises `ExportError` that names the node where something cannot be stored."""
        graph = self._program.graph_module.graph
        placeholders = [node for node in graph.nodes if node.op == "placeholder"]
        inputs: list[int] = []
        for spec, node in zip(self._program.graph_signature.input_specs, placeholders, strict=True):
            if spec.kind is InputKind.USER_INPUT:
                inputs.append(self._user_input(spec, node))
            elif node.users:
                self._state(spec, node)
        self.emit_calls(graph)
        outputs = self._outputs(graph.output_node())
        self.code.number_nodes()
        return EmittedMethod(
            plan=self._plan(inputs, outputs),
            interface=self._interface(),
            debug={
                "instructions": self.code.handles,
                "handles": handle_table(self._program, self._files),
                "delegates": self._delegate_debug,
            },
            debug_handles=self.code.debug_handles,
            delegates=self._delegate_map,
            delegate_results=self._delegate_results,
        )

    def _plan(self, inputs: list[int], outputs: list[int]) -> ExecutionPlan:
        return ExecutionPlan(
            name=self._name,
            container_meta_type=ContainerMetadata(
                tree_text(self._program.call_spec.in_spec), tree_text(result_structure(self._program))
            ),
            values=self.table.values,
            inputs=inputs,
            outputs=outputs,
            chains=[
                Chain(
                    inputs=[],
                    outputs=[],
                    instructions=self.code.instructions,
                    stacktrace=self.code.frames,
                )
            ],
            operators=self.code.operators,
            delegates=self._delegates,
            non_const_buffer_sizes=self._memory_sizes,
            non_const_buffer_device=memory_devices(self._program.graph_module),
        )

    # Placeholders and outputs

    def _user_input(self, spec: InputSpec, node: torch.fx.Node) -> int:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            index = self.table.add_tensor(node.meta["spec"])
        elif isinstance(value, torch.SymInt):
            index = self.table.add(Int(_example(value)))
        else:
            constant = spec.arg.value if isinstance(spec.arg, ConstantArgument) else value
            index = self.table.add_literal(constant)
        self.table.bind(node, index)
        return index

    def _state(self, spec: InputSpec, node: torch.fx.Node) -> None:
        tensor = self._tensor_of(spec)
        tensor_spec: TensorSpec = node.meta["spec"]
        name = spec.target or node.name
        if tensor_spec.is_constant:
            tag = self._external.of_constant(node, tensor)
            if tag is None:
                data = self._shared.constant(tensor, name)
                index = self.table.add_tensor(tensor_spec, data_buffer_idx=data)
            else:
                self._shared.external_constant(tensor, tensor_spec, name, tag)
                index = self.table.add_tensor(tensor_spec, name=name, is_external=True)
        elif tensor_spec.is_caller_owned:
            # With initial bytes and no place in memory a tensor would be a constant.
            index = self.table.add_tensor(tensor_spec, name=name)
        else:
            tag = self._external.of_initial_value(spec, tensor)
            if tag is None:
                data = self._shared.initial_value(tensor)
                index = self.table.add_tensor(tensor_spec, data_buffer_idx=data, name=spec.target)
            else:
                self._shared.external_initial_value(tensor, tensor_spec, name, tag)
                index = self.table.add_tensor(tensor_spec, name=name, is_external=True)
        self.table.bind(node, index)

    def _tensor_of(self, spec: InputSpec) -> torch.Tensor:
        for store in (self._program.state_dict, self._program.constants):
            found = store.get(spec.target)
            if isinstance(found, torch.Tensor):
                return found
        raise ExportError(
            f"method {self._name!r}: input {spec.target!r} of kind {spec.kind.name} has no tensor",
            method=self._name,
            argument=spec.target,
        )

    def _outputs(self, node: torch.fx.Node) -> list[int]:
        indices = []
        for value in node.args[0]:  # type: ignore[union-attr]
            if isinstance(value, torch.fx.Node):
                indices.append(self.table.index_of(value))
            else:
                indices.append(self.table.add_literal(value))
        return indices

    # Calls

    def emit_calls(self, graph: torch.fx.Graph) -> None:
        """Append the instructions of `graph`, whose placeholders are bound."""
        for node in graph.nodes:
            if node.op == "call_function":
                self._located(node)

    def _located(self, node: torch.fx.Node) -> None:
        try:
            self._call(node)
        except ExportError as error:
            if error.method is not None:
                raise
            location = source_location(node)
            raise ExportError(
                f"method {self._name!r}: {error}\n  node: {node.format_node()}\n  from: {location}",
                method=self._name,
                operator=str(node.target),
                argument=error.argument,
                expected=error.expected,
                got=error.got,
                source_line=str(location),
                hint=error.hint,
            ) from error

    def _call(self, node: torch.fx.Node) -> None:
        if node.target is alloc:
            self._alloc(node)
        elif node.target is operator.getitem:
            self._getitem(node)
        elif node.target is view:
            self._view(node)
        elif is_delegate_call(node):
            self._delegate_call(node)
        elif is_control_flow(node):
            emit_control_flow(self, node)
        elif is_symbolic_op(node.target):
            self._symbolic(node)
        elif isinstance(node.target, OpOverload):
            self._kernel_call(node, node.target)
        else:
            raise ExportError(f"{node.target} has no instruction")

    def _alloc(self, node: torch.fx.Node) -> None:
        spec = node.meta["spec"]
        if isinstance(spec, TensorSpec):
            self.table.bind(node, self.table.add_result(spec))
        else:
            self.table.bind(node, [self.table.add_result(each) for each in spec])

    def _getitem(self, node: torch.fx.Node) -> None:
        source, position = node.args
        found = self.table.of(source)  # type: ignore[arg-type]
        if not isinstance(found, list):
            raise ExportError(f"{node.format_node()}: {source} is one value, nothing to pick from")
        self.table.bind(node, found[position])  # type: ignore[index]

    def _view(self, node: torch.fx.Node) -> None:
        base, size = node.args
        spec: TensorSpec = node.meta["spec"]
        assert isinstance(base, torch.fx.Node)
        assert isinstance(size, Sequence)
        index = self.table.index_of(base)
        base_value = self.table.values[index].val
        is_placed = spec.root.memory_id is not None
        # A data file has no other shape of its tensors.
        has_data = spec.root.is_constant and base_value.data_buffer_idx != 0  # type: ignore[union-attr]
        if not spec.is_dynamic and not base.meta["spec"].is_dynamic and (is_placed or has_data):
            # The same bytes under another shape: no instruction.
            data = base_value.data_buffer_idx if has_data else 0  # type: ignore[union-attr]
            self.table.bind(node, self.table.add_tensor(spec, data_buffer_idx=data))
            return
        extents = [
            self.table.index_of(extent)
            if isinstance(extent, torch.fx.Node)
            else self.table.add_literal(extent)
            for extent in size
        ]
        size_index = self.table.add(IntList(extents))
        out = self.table.add_tensor(spec, is_placed=False)
        self.code.kernel(VIEW_OPERATOR, [index, size_index, out], node)
        self.table.bind(node, out)

    def _symbolic(self, node: torch.fx.Node) -> None:
        arguments = [
            self.table.index_of(value) if isinstance(value, torch.fx.Node) else self.table.add_literal(value)
            for value in node.args
        ]
        out = self.table.add_symbolic(node.meta["val"])
        self.code.kernel(EMITTED_AS[node.target], [*arguments, out], node)
        self.table.bind(node, out)

    def _kernel_call(self, node: torch.fx.Node, op: OpOverload) -> None:
        arguments, returned = kernel_arguments(self.table, op, node.args, node.kwargs)
        self.code.kernel(emitted_name(op), arguments, node)
        self.table.bind(node, returned)

    def _delegate_call(self, node: torch.fx.Node) -> None:
        lowered = lowered_module_of(node)
        index = self._delegate_index(lowered)
        arguments = [self.value_of(value) for value in node.args[1:]]
        specs = node.meta["spec"]
        returned = [specs] if isinstance(specs, TensorSpec) else specs
        results = [self.table.add_result(spec) for spec in returned]
        self._delegate_outputs[str(index)] = len(results)
        entry = delegate_entry(lowered, self._files)
        self._delegate_debug[str(index)] = entry
        own = sorted(int(handle) for handle in entry["handles"])
        at = self.code.delegate(index, [*arguments, *results], node, own)
        self._delegate_results[at] = len(results)
        self._delegate_map[at] = {
            "name": lowered.backend_id,
            "delegate_map": (lowered.meta or {}).get("debug_handle_map"),
        }
        self.table.bind(node, results[0] if isinstance(specs, TensorSpec) else results)

    def _interface(self) -> dict[str, Any]:
        interface: dict[str, Any] = {**method_interface(self._program)}
        if self._delegate_buffers:
            interface["delegate_buffers"] = self._delegate_buffers
        if self._delegate_outputs:
            interface["delegate_outputs"] = self._delegate_outputs
        return interface

    def _delegate_index(self, lowered: Any) -> int:
        """The delegate that runs a lowered module: one for each call, but one for all calls if it has state.

        Two delegates would each keep a state of their own, where the model has one.
        """
        buffers = lowered.original_module.graph_signature.buffers_to_mutate
        has_state = bool(buffers)
        if has_state and id(lowered) in self._stateful_delegates:
            return self._stateful_delegates[id(lowered)]
        index = len(self._delegates)
        if has_state:
            self._stateful_delegates[id(lowered)] = index
            self._delegate_buffers[str(index)] = sorted(set(buffers.values()))
        self._delegates.append(
            BackendDelegate(
                id=lowered.backend_id,
                processed=BackendDelegateDataReference(INLINE, self._shared.blob(lowered.processed_bytes)),
                compile_specs=[CompileSpec(spec.key, bytes(spec.value)) for spec in lowered.compile_specs],
            )
        )
        self._shared.named_from(lowered.named_data_store_output, self._name, index)
        return index

    def value_of(self, value: Any) -> int:
        """The value of a node that stands for one, or a new one for a number."""
        if isinstance(value, torch.fx.Node):
            return self.table.index_of(value)
        return self.table.add_literal(value)


def _example(value: torch.SymInt) -> int:
    """The number that was traced; where there is none, the smallest that is allowed."""
    hint = value.node.hint if value.node.has_hint() else None
    if hint is not None:
        return int(hint)
    return extent_bounds(value)[0]
