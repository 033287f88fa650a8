"""`MemoryPlanningPass` as ExecuTorch calls it: over a graph module and its signature."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature
from torch.fx.passes.infra.pass_base import PassBase, PassResult

from pteron.compat.exir.error import RefusedError
from pteron.compat.exir.memory_planning.algorithms import MemoryPlanningAlgorithmSuite
from pteron.compat.exir.memory_planning.apply import SIZES, apply_algo
from pteron.compat.exir.memory_planning.graph_specs import _is_out_var_node, get_node_tensor_specs
from pteron.compat.exir.memory_planning.verifier import Verifier
from pteron.compat.exir.operator import get_out_args_from_opoverload
from pteron.exir.edge.spec_names import ALIGNMENT
from pteron.exir.edge.tensor_spec import TensorSpec
from pteron.exir.memory.algorithms import PlanningAlgorithm, algorithm_name, require_valid_plan, search
from pteron.exir.memory.lifetime import Lifetime
from pteron.exir.memory.memory_planning_pass import MemoryPlanningPass as ProgramPlanning
from pteron.exir.memory.memory_planning_pass import unnamed_buffers_text
from pteron.exir.memory.share_mutable_buffers import SHARED_MEMORY_ID

__all__ = ["MemoryPlanningPass"]


class MemoryPlanningPass(ProgramPlanning, PassBase):
    """Plans the memory of a graph module; as `ExecutorchBackendConfig(memory_planning_pass=...)` that of a
    program.

    `memory_planning_algo`: a `MemoryPlanningAlgorithmSuite`, or what is called like one. Without one graph
    modules are planned by `greedy`, programs by `pteron.exir.memory.algorithms.search`.
    `allow_lifetime_and_storage_overlap` is kept for readers of it; plans of programs never overlap.

    For a program `run` is called with its graph module and signature, so that a subclass can set `mem_id` of
    specs before. The places come from this package's planner, which knows what views and bodies share, with
    the algorithm given; its settings are checked there.
    """

    def __init__(
        self,
        memory_planning_algo: Callable[..., list[int]] | None = None,
        allow_lifetime_and_storage_overlap: bool = False,
        alloc_graph_input: bool = True,
        alloc_graph_output: bool = True,
        alloc_mutable_buffers: bool = True,
        share_mutable_buffers: bool = False,
        alignment: int = ALIGNMENT,
    ) -> None:
        if share_mutable_buffers and not alloc_mutable_buffers:
            raise ValueError("share_mutable_buffers is only meaningful when alloc_mutable_buffers is True")
        self._is_algorithm_given = memory_planning_algo is not None
        self.memory_planning_algo: Any = memory_planning_algo or MemoryPlanningAlgorithmSuite()
        self.allow_lifetime_and_storage_overlap = allow_lifetime_and_storage_overlap
        self.alloc_graph_input = alloc_graph_input
        self.alloc_graph_output = alloc_graph_output
        self.alloc_mutable_buffers = alloc_mutable_buffers
        self.share_mutable_buffers = share_mutable_buffers
        self.alignment = alignment
        self.enable_non_cpu_memory_planning = False
        self._program: ExportedProgram | None = None
        self._shared: list[tuple[torch.fx.GraphModule, dict[str, TensorSpec], set[str]]] = []

    def call(self, graph_module: torch.fx.GraphModule) -> PassResult:
        """`run` without a signature."""
        warnings.warn(
            "MemoryPlanningPass.call() knows no buffers that a method updates; use MemoryPlanningPass.run()",
            FutureWarning,
            stacklevel=2,
        )
        return self.run(graph_module)

    def plan(self, program: ExportedProgram) -> list[int]:
        """Plan a program by `run`; the sizes of its memories in bytes."""
        self._program = program
        try:
            self.run(program.graph_module, program.graph_signature)
        finally:
            self._program = None
        sizes: list[int] = program.graph_module.meta[SIZES]
        return sizes

    def unnamed_buffers(self, method: str, buffers: Sequence[str]) -> RefusedError:
        """An `ExportError` that is ExecuTorch's `InternalError` too."""
        return RefusedError(unnamed_buffers_text(method, buffers), method=method, got=", ".join(buffers))

    def run(  # type: ignore[override]  # ExecuTorch's arguments, which subclasses of it take
        self, graph_module: torch.fx.GraphModule, graph_signature: ExportGraphSignature | None = None
    ) -> PassResult:
        """Give every spec of a graph its place, in place.

        Raises:
            InternalError: the algorithm cannot place a spec.
            AssertionError: inputs or outputs are planned against the settings.
        """
        if self._program is not None and graph_module is self._program.graph_module:
            graph_module.meta[SIZES] = self._program_planning(self._program).run(self._program)
            return PassResult(graph_module, True)
        self._set_alloc_node_spec(graph_module)
        is_alloc_state = self.alloc_mutable_buffers and not self.share_mutable_buffers
        apply_algo(
            self.memory_planning_algo,
            graph_module,
            self.alignment,
            graph_signature,
            self.alloc_graph_input,
            self.alloc_graph_output,
            is_alloc_state,
            self.enable_non_cpu_memory_planning,
        )
        if self.share_mutable_buffers and graph_signature is not None:
            self._remember_buffers(graph_module, graph_signature)
        verifier = Verifier(
            graph_module, self.alloc_graph_input, self.alloc_graph_output, is_alloc_state, graph_signature
        )
        verifier.verify_graph_input_output()
        return PassResult(graph_module, True)

    def run_multimethod(self) -> None:
        """Place the buffers that the graphs planned so far update: each by its name at one offset of memory
        2, in all graphs. Does nothing without `share_mutable_buffers`.

        Raises:
            ValueError: a graph has planned more memories than the first.
        """
        updated = {name for _, _, names in self._shared for name in names}
        end = 0
        for name in sorted(updated):
            size = 0
            for _, buffers, _ in self._shared:
                if name in buffers:
                    spec = buffers[name]
                    spec.mem_id, spec.mem_offset = SHARED_MEMORY_ID, end
                    size = spec.realign(self.alignment)
            end += size
        for graph_module, _, _ in self._shared:
            if len(graph_module.meta[SIZES]) != SHARED_MEMORY_ID:
                raise ValueError("Cannot share mutable state if not using default memory ids")
            graph_module.meta[SIZES].append(end)

    def _remember_buffers(self, graph_module: torch.fx.GraphModule, signature: ExportGraphSignature) -> None:
        buffers = {
            signature.inputs_to_buffers[str(node.target)]: get_node_tensor_specs(node)[0]
            for node in graph_module.graph.nodes
            if node.op == "placeholder" and str(node.target) in signature.inputs_to_buffers
        }
        updated = set(signature.buffers_to_mutate.values())
        if any(buffers[name].mem_id is not None for name in updated & buffers.keys()):
            raise ValueError(
                "Cannot share mutable buffers if they already have a mem_id or mem_offset assigned"
            )
        self._shared.append((graph_module, buffers, updated))

    def _program_planning(self, program: ExportedProgram) -> ProgramPlanning:
        kwargs: dict[str, Any] = {
            "alloc_graph_input": self.alloc_graph_input,
            "alloc_graph_output": self.alloc_graph_output,
            "alloc_mutable_buffers": self.alloc_mutable_buffers,
            "share_mutable_buffers": self.share_mutable_buffers,
            "alignment": self.alignment,
        }
        if self._is_algorithm_given:
            planning: ProgramPlanning = _SuitePlanning(self.memory_planning_algo, program, **kwargs)
        else:
            planning = ProgramPlanning(search, **kwargs)
        planning.enable_non_cpu_memory_planning = self.enable_non_cpu_memory_planning
        return planning

    def _set_alloc_node_spec(self, graph_module: torch.fx.GraphModule) -> None:
        """Let the allocations of out variants have the specs of the results, in every graph below."""
        for module in graph_module.modules():
            for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
                if _is_out_var_node(node):
                    _state_allocations(node)


def _state_allocations(node: torch.fx.Node) -> None:
    names = get_out_args_from_opoverload(cast(OpOverload, node.target))
    if len(names) == 1:
        made: Any = node.kwargs[names[0]]
        made.meta["spec"] = node.meta["spec"]
        _share_storage(node)
        return
    specs = iter(get_node_tensor_specs(node))
    for name in names:
        made = node.kwargs[name]
        if made is not None:
            made.meta["spec"] = next(specs)


def _share_storage(node: torch.fx.Node) -> None:
    """Let the result of a node lie in an operand, where its meta data says so."""
    index, offset = node.meta.get("_share_alloc_with_arg_idx"), node.meta.get("_shared_alloc_offset")
    if index is None:
        if offset is not None:
            raise ValueError("_shared_alloc_offset meta was set but not _share_alloc_with_arg_idx.")
        return
    offset = 0 if offset is None else offset
    if not isinstance(index, int) or not isinstance(offset, int):
        raise TypeError("_share_alloc_with_arg_idx and _shared_alloc_offset must be ints")
    if not 0 <= index < len(node.args):
        raise IndexError("_share_alloc_with_arg_idx must index node.args")
    operand = node.args[index]
    base = operand.meta.get("spec") if isinstance(operand, torch.fx.Node) else None
    spec = node.meta.get("spec")
    if not isinstance(base, TensorSpec) or not isinstance(spec, TensorSpec):
        raise TypeError("_share_alloc_with_arg_idx: the node and its argument must have one TensorSpec each")
    spec.storage_base, spec.storage_base_offset = base, offset


class _SuitePlanning(ProgramPlanning):
    """Plans a program with an algorithm over specs, which may choose the memories too."""

    def __init__(self, algorithm: Callable[..., list[int]], program: ExportedProgram, **kwargs: Any) -> None:
        super().__init__(over_lifetimes(algorithm, program), **kwargs)
        self._algorithm = algorithm
        self._program = program

    def place(self, lifetimes: dict[TensorSpec, Lifetime]) -> list[int]:
        """All tensors at once; each memory by itself where shared buffers have their places already."""
        if any(spec.memory_offset is not None for spec in lifetimes):
            return super().place(lifetimes)
        stand_ins = [stand_in(lifetime) for lifetime in lifetimes.values()]
        for spec, made in zip(lifetimes, stand_ins, strict=True):
            made.mem_id = spec.memory_id
        graph, signature = self._program.graph_module, self._program.graph_signature
        sizes = list(self._algorithm(self.alignment, stand_ins, graph, signature, 0))
        memories: dict[int, list[tuple[Lifetime, int]]] = {}
        for (spec, lifetime), made in zip(lifetimes.items(), stand_ins, strict=True):
            spec.memory_id, spec.memory_offset = made.mem_id, made.mem_offset
            if made.mem_id is not None and made.mem_offset is not None:
                memories.setdefault(made.mem_id, []).append((lifetime, made.mem_offset))
        planned = [lifetime for placed in memories.values() for lifetime, _ in placed]
        if len(planned) != len(lifetimes):
            # The check refuses fewer offsets than tensors, and says so.
            require_valid_plan(self._algorithm, list(lifetimes.values()), self.alignment, [], 0)
        for memory, placed in memories.items():
            size = sizes[memory] if memory < len(sizes) else 0
            spans, offsets = [each for each, _ in placed], [offset for _, offset in placed]
            require_valid_plan(self._algorithm, spans, self.alignment, offsets, size)
        return sizes


def stand_in(lifetime: Lifetime) -> TensorSpec:
    """A spec of as many bytes as a tensor, in use as long."""
    spec = TensorSpec(torch.uint8, [lifetime.nbytes])
    spec.lifetime = [lifetime.first, lifetime.last]
    return spec


def over_lifetimes(algorithm: Callable[..., list[int]], program: ExportedProgram) -> PlanningAlgorithm:
    """An algorithm over specs as one over lifetimes: each tensor is a spec of as many bytes."""
    name = algorithm_name(algorithm.func if isinstance(algorithm, partial) else algorithm)

    def place(lifetimes: Sequence[Lifetime], alignment: int) -> tuple[list[int], int]:
        specs = [stand_in(lifetime) for lifetime in lifetimes]
        sizes = algorithm(alignment, specs, program.graph_module, program.graph_signature, 0)
        # Fewer offsets than tensors where the algorithm left one out, which the planner refuses.
        return [spec.mem_offset for spec in specs if spec.mem_offset is not None and spec.mem_id == 1], sizes[
            1
        ]

    place.__name__ = name
    return place
