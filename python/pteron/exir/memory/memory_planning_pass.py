"""Give each tensor of a method its place in planned memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram

from pteron.errors import ExportError
from pteron.exir.edge.control_flow import graph_modules
from pteron.exir.edge.source_location import source_location
from pteron.exir.edge.target_device import CPU, device_name
from pteron.exir.edge.tensor_spec import TensorSpec
from pteron.exir.memory.algorithms import PlanningAlgorithm, require_algorithm, require_valid_plan, search
from pteron.exir.memory.lifetime import Lifetime, align_up
from pteron.exir.memory.memory_devices import by_device, state_memory_devices
from pteron.exir.memory.share_mutable_buffers import SHARED_MEMORY_ID, share_mutable_buffers
from pteron.exir.memory.spec_lifetimes import PlaceholderRoles, placeholder_roles, spec_lifetimes, specs_in

DEFAULT_MEMORY_ID = 1
# A program lists the size of every memory up to the last one.
MOST_MEMORY_IDS = 255

MEMORY_ID = "memory_id"
"""The key in a node's `meta` under which a pass states in which memory the node's results are planned: an
int, or one int or None per result.
"""


def take_requested_memory_ids(program: ExportedProgram) -> None:
    """Set `memory_id` of the specs of nodes with `meta["memory_id"]`, in place.

    Raises `ExportError` that names the node: for an id outside 1 to 255, for two ids of one tensor, and for
    a tensor that is not planned.
    """
    for module in graph_modules(program.graph_module):
        for node in module.graph.nodes:
            for spec, memory_id in _requests(node):
                _request(spec.root, memory_id, node)


def _requests(node: torch.fx.Node) -> Iterator[tuple[TensorSpec, int]]:
    wanted: Any = node.meta.get(MEMORY_ID)
    # A write-back carries the meta data of the value that it copies, and makes no tensor.
    if wanted is None or node.target is torch.ops.aten.copy_.default:
        return
    specs = list(specs_in(node.meta.get("spec")))
    ids = list(wanted) if isinstance(wanted, (list, tuple)) else [wanted] * len(specs)
    if len(ids) != len(specs):
        raise _refused(node, f"names {len(ids)} memories for {len(specs)} tensors")
    for spec, memory_id in zip(specs, ids, strict=True):
        if memory_id is None:
            continue
        if type(memory_id) is not int or not 1 <= memory_id <= MOST_MEMORY_IDS:
            raise _refused(node, f"is {memory_id!r}, expected an integer from 1 to {MOST_MEMORY_IDS}")
        yield spec, memory_id


def _request(spec: TensorSpec, memory_id: int, node: torch.fx.Node) -> None:
    if spec.is_constant:
        raise _refused(node, "is set on a constant, which lies in the program's data")
    if spec.is_caller_owned:
        raise _refused(node, "is set on a tensor whose memory the caller gives")
    device = (spec.device, spec.device_index)
    if device != CPU:
        raise _refused(
            node, f"is set on a tensor on device {device_name(device)}, which has memories of its own"
        )
    if spec.memory_id not in (None, memory_id):
        raise _refused(node, f"is {memory_id}, but the tensor it shares memory with is in {spec.memory_id}")
    spec.memory_id = memory_id


def _refused(node: torch.fx.Node, what: str) -> ExportError:
    location = source_location(node)
    return ExportError(
        f'meta["{MEMORY_ID}"] of {node.format_node()} {what} (from {location})',
        operator=str(node.target),
        source_line=str(location),
        hint="set it on the nodes that make the tensors, in a pass of ExecutorchBackendConfig(passes=[...])",
    )


MINIMUM_ALIGNMENT = 16

# The key of a planned graph's `meta`; ExecuTorch has the sizes there too.
_SIZES = "non_const_buffer_sizes"


class MemoryPlanningPass:
    """Settings of memory planning, and the planning itself.

    `memory_planning_algo`: a pure function (lifetimes, alignment in bytes) → (offsets, total size in bytes).
    `alloc_graph_input`, `alloc_graph_output`: plan memory for inputs and outputs; otherwise the caller
    gives it.
    `alloc_mutable_buffers`: plan memory for buffers that the method updates. Without it the caller gives
    memory and first values, by the names of the buffers, which the file needs then
    (`emit_mutable_buffer_names`). That is for other runtimes: this package's gives the memory itself, and
    starts with zeros.
    `share_mutable_buffers`: one place for a buffer in all methods whose settings say so, in a memory that
    holds nothing else (id 2). Buffers are known by name. Methods that are loaded together
    (`Program.load_methods`) then have one copy of them.
    `alignment`: of every tensor, in bytes: a power of two, at least 16.

    `enable_non_cpu_memory_planning` (no argument; `to_executorch` sets it from its settings): tensors on
    other devices than the CPU get memories of their own, one or more for each device, behind the CPU's.

    Tensors go to memory 1 unless the node that makes them has `meta["memory_id"]`, or a subclass sets
    `memory_id` of specs in `run` before it calls this class's. Each memory is planned by itself. A spec with
    `memory_offset` too keeps its place; the other tensors of its memory lie behind it.
    """

    def __init__(
        self,
        memory_planning_algo: PlanningAlgorithm = search,
        alloc_graph_input: bool = True,
        alloc_graph_output: bool = True,
        alloc_mutable_buffers: bool = True,
        share_mutable_buffers: bool = False,
        alignment: int = MINIMUM_ALIGNMENT,
    ) -> None:
        if share_mutable_buffers and not alloc_mutable_buffers:
            raise ExportError(
                "MemoryPlanningPass(share_mutable_buffers=True, alloc_mutable_buffers=False): shared buffers "
                "have a place in planned memory"
            )
        if alignment < MINIMUM_ALIGNMENT or alignment & (alignment - 1):
            raise ExportError(
                f"MemoryPlanningPass(alignment={alignment}): "
                f"expected a power of two, at least {MINIMUM_ALIGNMENT}"
            )
        self.memory_planning_algo = require_algorithm(
            memory_planning_algo, "MemoryPlanningPass(memory_planning_algo=...)"
        )
        self.alloc_graph_input = alloc_graph_input
        self.alloc_graph_output = alloc_graph_output
        self.alloc_mutable_buffers = alloc_mutable_buffers
        self.share_mutable_buffers = share_mutable_buffers
        self.alignment = alignment
        self.enable_non_cpu_memory_planning = True

    def plan(self, program: ExportedProgram) -> list[int]:
        """What the pipeline calls: `run`, for settings whose `run` takes a program."""
        return self.run(program)

    def run(self, program: ExportedProgram) -> list[int]:
        """Set memory id and offset of every planned spec of `program`, in place.

        Returns the sizes of the memories in bytes; index 0 is reserved and 0, index i belongs to memory id
        i. Raises `ExportError` where a memory id cannot be, and where the algorithm's plan is none.
        """
        roles = placeholder_roles(program)
        for spec in roles.constants:
            spec.is_constant = True
        self._leave_to_caller(program, roles)
        take_requested_memory_ids(program)
        return self._place_by_device(program, planned_lifetimes(program))

    def _place_by_device(self, program: ExportedProgram, lifetimes: dict[TensorSpec, Lifetime]) -> list[int]:
        groups = by_device(lifetimes) if self.enable_non_cpu_memory_planning else {CPU: lifetimes}
        if not groups:
            return self.place({})
        sizes, devices = [0], [CPU]
        for device, specs in groups.items():
            if device != CPU and self.share_mutable_buffers:
                # The memory of shared buffers has the same number in all methods.
                sizes += [0] * (SHARED_MEMORY_ID + 1 - len(sizes))
                devices += [CPU] * (len(sizes) - len(devices))
            found = self.place(specs)
            for spec in specs:
                assert spec.memory_id is not None
                spec.memory_id += len(sizes) - 1
            sizes += found[1:]
            devices += [device] * (len(found) - 1)
        state_memory_devices(program.graph_module, devices)
        return sizes

    def unnamed_buffers(self, method: str, buffers: Sequence[str]) -> Exception:
        """What is wrong where `method` updates buffers without place in memory and the file has no names."""
        return ExportError(unnamed_buffers_text(method, buffers), method=method, got=", ".join(buffers))

    def place(self, lifetimes: dict[TensorSpec, Lifetime]) -> list[int]:
        """Place the tensors of each memory by themselves; the sizes of the memories in bytes."""
        pools: dict[int, list[TensorSpec]] = {DEFAULT_MEMORY_ID: []}
        for spec in lifetimes:
            if spec.memory_id is None:
                spec.memory_id = DEFAULT_MEMORY_ID
            pools.setdefault(spec.memory_id, []).append(spec)
        sizes = [0] * (max(pools) + 1)
        for memory_id, specs in pools.items():
            sizes[memory_id] = self._plan(specs, lifetimes)
        return sizes

    def _plan(self, specs: list[TensorSpec], lifetimes: dict[TensorSpec, Lifetime]) -> int:
        """Place the tensors of one memory; its size in bytes."""
        pinned = [spec.memory_offset + spec.nbytes() for spec in specs if spec.memory_offset is not None]
        base = align_up(max(pinned, default=0), self.alignment)
        free = [spec for spec in specs if spec.memory_offset is None]
        wanted = [lifetimes[spec] for spec in free]
        offsets, total = self.memory_planning_algo(wanted, self.alignment)
        require_valid_plan(self.memory_planning_algo, wanted, self.alignment, offsets, total)
        for spec, offset in zip(free, offsets, strict=True):
            spec.memory_offset = base + offset
        return base + total

    def _leave_to_caller(self, program: ExportedProgram, roles: PlaceholderRoles) -> None:
        outputs = {
            spec.root
            for operand in program.graph_module.graph.output_node().all_input_nodes
            for spec in specs_in(operand.meta.get("spec"))
        }
        if not self.alloc_mutable_buffers:
            for spec in roles.state - roles.constants:
                spec.is_caller_owned = True
        if not self.alloc_graph_input:
            for spec in roles.inputs - roles.state:
                spec.is_caller_owned = True
        if not self.alloc_graph_output:
            for spec in outputs - roles.inputs - roles.state:
                spec.is_caller_owned = not spec.is_constant


def unnamed_buffers_text(method: str, buffers: Sequence[str]) -> str:
    """The text for buffers that nobody could give memory to."""
    return (
        f"MemoryPlanningPass(alloc_mutable_buffers=False): method {method!r} updates {', '.join(buffers)}, "
        "and the caller who is to give them memory finds no name of them in the file; set "
        "ExecutorchBackendConfig(emit_mutable_buffer_names=True)"
    )


def plan_memory(
    programs: Mapping[str, ExportedProgram],
    planning_of: Callable[[str], MemoryPlanningPass],
    enable_non_cpu_memory_planning: bool = True,
) -> None:
    """Give every tensor of all methods its place in memory; buffers that methods share get one place in all.

    `programs`: with out variants and specs; changed in place, `memory_sizes` reads the sizes afterwards.
    `planning_of`: the settings of a method. `enable_non_cpu_memory_planning`: tensors on other devices get
    memories there. Raises `ExportError` where a method plans other tensors in the
    memory of shared buffers.
    """
    plannings = {name: planning_of(name) for name in programs}
    for planning in plannings.values():
        planning.enable_non_cpu_memory_planning = enable_non_cpu_memory_planning
    sharing = {name: planning for name, planning in plannings.items() if planning.share_mutable_buffers}
    shared_size = share_mutable_buffers(
        {name: programs[name] for name in sharing},
        max((planning.alignment for planning in sharing.values()), default=1),
    )
    for name, program in programs.items():
        sizes = plannings[name].plan(program)
        if name in sharing and shared_size:
            # All methods that share the memory give it one size, also those that use a part of it.
            sizes += [0] * (SHARED_MEMORY_ID + 1 - len(sizes))
            if sizes[SHARED_MEMORY_ID] > shared_size:
                raise ExportError(
                    f"method {name!r} plans other tensors in memory {SHARED_MEMORY_ID}, which holds the "
                    "buffers that methods share",
                    method=name,
                    hint="give these tensors another memory_id",
                )
            sizes[SHARED_MEMORY_ID] = shared_size
        program.graph_module.meta[_SIZES] = sizes


def memory_sizes(program: ExportedProgram) -> list[int]:
    """The sizes of the memories of a planned program, in bytes; index 0 is reserved."""
    sizes: list[int] = program.graph_module.meta[_SIZES]
    return sizes


def planned_lifetimes(program: ExportedProgram) -> dict[TensorSpec, Lifetime]:
    """The tensors of `program` that own planned memory, and when each is in use.

    `program` has specs that say what is constant and what the caller gives.
    """
    state = placeholder_roles(program).state
    found = spec_lifetimes(program.graph_module.graph, state)
    for spec, span in found.items():
        spec.lifetime = list(span)
    return {
        spec: Lifetime(spec.nbytes(), first, last)
        for spec, (first, last) in found.items()
        if not spec.is_constant and not spec.is_caller_owned
    }
