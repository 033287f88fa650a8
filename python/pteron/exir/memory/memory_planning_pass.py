"""Give each tensor of a method its place in planned memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from pteron.errors import ExportError
from pteron.exir.edge.tensor_spec import TensorSpec
from pteron.exir.memory.greedy import greedy
from pteron.exir.memory.lifetime import Lifetime
from pteron.exir.memory.spec_lifetimes import spec_lifetimes, specs_in

PlanningAlgorithm = Callable[[Sequence[Lifetime], int], tuple[list[int], int]]

DEFAULT_MEMORY_ID = 1
MINIMUM_ALIGNMENT = 16


class MemoryPlanningPass:
    """Settings of memory planning, and the planning itself.

    `memory_planning_algo`: a pure function (lifetimes, alignment in bytes) → (offsets, total size in bytes).
    `alloc_graph_input`, `alloc_graph_output`: plan memory for inputs and outputs; otherwise the caller
    gives it.
    `alloc_mutable_buffers`: plan memory for buffers that the method updates. Must be true.
    `share_mutable_buffers`: one place for a buffer in all methods. Not supported; must be false.
    `alignment`: of every tensor, in bytes: a power of two, at least 16.
    """

    def __init__(
        self,
        memory_planning_algo: PlanningAlgorithm = greedy,
        alloc_graph_input: bool = True,
        alloc_graph_output: bool = True,
        alloc_mutable_buffers: bool = True,
        share_mutable_buffers: bool = False,
        alignment: int = MINIMUM_ALIGNMENT,
    ) -> None:
        if not alloc_mutable_buffers:
            raise ExportError(
                "MemoryPlanningPass(alloc_mutable_buffers=False) is not supported: "
                "buffers that a method updates live in planned memory"
            )
        if share_mutable_buffers:
            raise ExportError(
                "MemoryPlanningPass(share_mutable_buffers=True) is not supported: "
                "each method has state of its own"
            )
        if alignment < MINIMUM_ALIGNMENT or alignment & (alignment - 1):
            raise ExportError(
                f"MemoryPlanningPass(alignment={alignment}): "
                f"expected a power of two, at least {MINIMUM_ALIGNMENT}"
            )
        self.memory_planning_algo = memory_planning_algo
        self.alloc_graph_input = alloc_graph_input
        self.alloc_graph_output = alloc_graph_output
        self.alignment = alignment

    def run(self, program: ExportedProgram) -> list[int]:
        """Set memory id and offset of every planned spec of `program`, in place.

        Returns the sizes of the memories in bytes; index 0 is reserved and 0, index i belongs to memory id i.
        """
        graph = program.graph_module.graph
        inputs, state = self._placeholders(program)
        outputs = {
            spec.root
            for operand in graph.output_node().all_input_nodes
            for spec in specs_in(operand.meta.get("spec"))
        }
        self._leave_to_caller(inputs, outputs, state)
        lifetimes = spec_lifetimes(graph, frozenset(state))
        planned = [spec for spec in lifetimes if not spec.is_constant and not spec.is_caller_owned]
        offsets, total = self.memory_planning_algo(
            [Lifetime(spec.nbytes, *lifetimes[spec]) for spec in planned], self.alignment
        )
        for spec, offset in zip(planned, offsets, strict=True):
            spec.memory_id, spec.memory_offset = DEFAULT_MEMORY_ID, offset
        return [0, total]

    def _leave_to_caller(
        self, inputs: set[TensorSpec], outputs: set[TensorSpec], state: set[TensorSpec]
    ) -> None:
        if not self.alloc_graph_input:
            for spec in inputs - state:
                spec.is_caller_owned = True
        if not self.alloc_graph_output:
            for spec in outputs - inputs - state:
                spec.is_caller_owned = not spec.is_constant

    def _placeholders(self, program: ExportedProgram) -> tuple[set[TensorSpec], set[TensorSpec]]:
        """(specs of user inputs, specs of buffers that the method updates); other placeholders become
        constants.
        """
        graph = program.graph_module.graph
        updated = {
            node.args[0]
            for node in graph.nodes
            if node.op == "call_function" and node.target is torch.ops.aten.copy_.default
        }
        inputs: set[TensorSpec] = set()
        state: set[TensorSpec] = set()
        placeholders = [node for node in graph.nodes if node.op == "placeholder"]
        for signature, node in zip(program.graph_signature.input_specs, placeholders, strict=True):
            for spec in specs_in(node.meta.get("spec")):
                if signature.kind is InputKind.USER_INPUT:
                    inputs.add(spec)
                elif node in updated:
                    state.add(spec)
                else:
                    spec.is_constant = True
        return inputs, state
