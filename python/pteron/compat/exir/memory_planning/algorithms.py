"""Planning algorithms over specs: `greedy`, `naive`, and the suite that takes the better plan.

An algorithm is called as (alignment in bytes, specs with lifetimes, graph module, signature, extra bytes at
the end of each memory). The graph module's `input_mem_buffer_sizes` is what its bodies have taken already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export.graph_signature import ExportGraphSignature

from pteron.compat.exir.error import InternalError, internal_assert
from pteron.compat.exir.memory_planning.graph_specs import span, storage_bases
from pteron.exir.edge.tensor_spec import TensorSpec

__all__ = [
    "AllocationSpec",
    "MemoryAlgoResult",
    "MemoryPlanningAlgorithmSuite",
    "SharedObject",
    "SpecAllocResult",
    "greedy",
    "naive",
    "pick_shared_obj",
]


@dataclass
class AllocationSpec:
    """A spec and its offset in bytes in a shared object."""

    offset: int
    spec: TensorSpec


@dataclass
class SharedObject:
    """A piece of a memory that specs share: number, offset and size in bytes, first and last use."""

    idx: int
    offset: int
    size: int
    first_used_index: int
    last_used_index: int
    allocations: list[AllocationSpec] = field(default_factory=list)

    def place(self, offset: int, spec: TensorSpec) -> None:
        """Put a spec at an offset; the object is in use as long as the spec."""
        first, last = span(spec)
        self.first_used_index = min(self.first_used_index, first)
        self.last_used_index = max(self.last_used_index, last)
        self.allocations.append(AllocationSpec(offset, spec))


@dataclass
class SpecAllocResult:
    """Where an algorithm puts a spec: memory, shared object, offset in bytes."""

    mem_id: int
    mem_obj_id: int
    mem_offset: int


@dataclass
class MemoryAlgoResult:
    """The place of every spec, and the sizes of the memories in bytes; index 0 is reserved."""

    spec_dict: dict[TensorSpec, SpecAllocResult]
    bufsizes: list[int]


TAKEN = "input_mem_buffer_sizes"
"""The attribute of a graph module with the bytes of each memory that its bodies take."""

Algorithm = Callable[..., MemoryAlgoResult]


def end_in_use(shared: SharedObject, spec: TensorSpec) -> int | None:
    """Where the last of those in `shared` that are in use together with `spec` ends; None without any."""
    first, last = span(spec)
    ends = [
        each.offset + each.spec.allocated_memory
        for each in shared.allocations
        if first <= span(each.spec)[1] and span(each.spec)[0] <= last
    ]
    return max(ends, default=None)


def pick_shared_obj(
    shared_objects: list[SharedObject], spec: TensorSpec, allow_overlapping_allocations: bool = True
) -> SharedObject:
    """Place a spec: in the first object that nothing uses at the same time; else, with
    `allow_overlapping_allocations`, behind those that do, in the first object with room; else in a new one,
    which is appended. Specs must come from the largest to the smallest.
    """
    ends = [(shared, end_in_use(shared, spec)) for shared in shared_objects]
    for shared, end in ends:
        if end is None:
            internal_assert(shared.size >= spec.allocated_memory, "Allocation specs are not sorted")
            shared.place(0, spec)
            return shared
    for shared, end in ends if allow_overlapping_allocations else ():
        if end and end + spec.allocated_memory <= shared.size:
            shared.place(end, spec)
            return shared
    first, last = span(spec)
    made = SharedObject(len(shared_objects), -1, spec.allocated_memory, first, last)
    made.place(0, spec)
    shared_objects.append(made)
    return made


def greedy(
    alignment: int,
    specs: Iterable[TensorSpec],
    graph_module: torch.fx.GraphModule,
    graph_signature: ExportGraphSignature | None,
    extra_padding: int = 0,
    *,
    allow_overlapping_allocations: bool = True,
) -> MemoryAlgoResult:
    """Specs share objects of the size of the largest one in them. A spec with a `storage_base` lies in it.

    `allow_overlapping_allocations`: specs that are in use together may lie behind each other in one object.

    Raises:
        InternalError: a spec does not fit into its `storage_base`, or that one is not planned.
    """
    ordered = from_the_largest(specs)
    placed: dict[TensorSpec, SharedObject] = {}
    result = MemoryAlgoResult({}, [])
    memories: dict[int, list[SharedObject]] = {}
    for spec in ordered:
        spec.realign(alignment)
        result.spec_dict[spec] = SpecAllocResult(1 if spec.mem_id is None else spec.mem_id, 0, 0)
        if spec.storage_base is None:
            shared = memories.setdefault(result.spec_dict[spec].mem_id, [])
            placed[spec] = pick_shared_obj(shared, spec, allow_overlapping_allocations)
    place_in_bases(ordered, placed, result)
    result.bufsizes = lay_out(memories, graph_module, extra_padding, result)
    return result


def from_the_largest(specs: Iterable[TensorSpec]) -> list[TensorSpec]:
    """Specs from the largest to the smallest, of equal ones the later first."""
    return sorted(specs, key=lambda spec: spec.allocated_memory)[::-1]


def place_in_bases(
    specs: Iterable[TensorSpec], placed: dict[TensorSpec, SharedObject], result: MemoryAlgoResult
) -> None:
    """Place specs with a `storage_base` in it, bases first; those that are placed stay."""
    for spec in specs:
        for each in reversed(storage_bases(spec)):
            if each in result.spec_dict and each not in placed:
                placed[each] = _place_in_base(each, placed, result)


def _place_in_base(
    spec: TensorSpec, placed: dict[TensorSpec, SharedObject], result: MemoryAlgoResult
) -> SharedObject:
    base = spec.storage_base
    if base is None or base not in placed:
        raise InternalError(
            "Circular or unresolvable storage_base dependency chain: "
            f"allocated_memory={spec.allocated_memory}"
        )
    shared, start = placed[base], spec.storage_base_offset
    base_offset = next(each.offset for each in shared.allocations if each.spec is base)
    internal_assert(start >= 0, "storage_base_offset must be non-negative.")
    internal_assert(
        (base_offset + start) % spec.alignment == 0,
        f"Storage-backed TensorSpec allocation must respect alignment: offset {start} in a base at "
        f"{base_offset}, alignment {spec.alignment}.",
    )
    internal_assert(
        start + spec.allocated_memory <= base.allocated_memory,
        "Storage-backed TensorSpec allocation must fit within storage_base.",
    )
    shared.place(base_offset + start, spec)
    result.spec_dict[spec].mem_id = result.spec_dict[base].mem_id
    return shared


def taken_before(graph_module: torch.fx.GraphModule) -> list[int]:
    """Bytes of each memory that bodies of the graph have taken."""
    return list(getattr(graph_module, TAKEN, None) or ())


def lay_out(
    memories: dict[int, list[SharedObject]],
    graph_module: torch.fx.GraphModule,
    extra_padding: int,
    result: MemoryAlgoResult,
) -> list[int]:
    """Put the objects of each memory one behind the other; the sizes of the memories."""
    sizes = taken_before(graph_module)
    sizes += [0] * (max(memories, default=1) + 1 - len(sizes))
    for memory, objects in memories.items():
        for shared in objects:
            shared.offset = sizes[memory]
            sizes[memory] += shared.size
            for each in shared.allocations:
                place = result.spec_dict[each.spec]
                place.mem_obj_id, place.mem_offset = shared.idx, shared.offset + each.offset
        sizes[memory] += extra_padding if objects else 0
    return sizes


def naive(
    alignment: int,
    specs: Iterable[TensorSpec],
    graph_module: torch.fx.GraphModule,
    graph_signature: ExportGraphSignature | None,
    extra_padding: int = 0,
) -> MemoryAlgoResult:
    """Specs lie one behind the other, in the order given.

    Raises:
        InternalError: a spec has a `storage_base`, which only `greedy` follows.
    """
    sizes = taken_before(graph_module)
    sizes += [0] * (2 - len(sizes))
    result = MemoryAlgoResult({}, sizes)
    for spec in specs:
        if spec.storage_base is not None:
            raise InternalError(
                "The naive memory planning algorithm does not support storage-backed TensorSpecs; use greedy"
            )
        memory = 1 if spec.mem_id is None else spec.mem_id
        sizes += [0] * (memory + 1 - len(sizes))
        result.spec_dict[spec] = SpecAllocResult(memory, 0, sizes[memory])
        sizes[memory] += spec.realign(alignment)
    return result


class MemoryPlanningAlgorithmSuite:
    """Runs every algorithm of a list, takes the plan that needs least memory, of equal ones the first, and
    writes it into the specs. Called as an algorithm is; gives the sizes of the memories in bytes.
    """

    def __init__(self, algo_list: Sequence[Algorithm] | None = None) -> None:
        self.algo_list: list[Algorithm] = [greedy] if algo_list is None else list(algo_list)

    def __call__(
        self,
        alignment: int,
        specs: Iterable[TensorSpec],
        graph_module: torch.fx.GraphModule,
        graph_signature: Any,
        extra_padding: int = 0,
    ) -> list[int]:
        specs = list(specs)
        plans = [
            algorithm(alignment, specs, graph_module, graph_signature, extra_padding)
            for algorithm in self.algo_list
        ]
        internal_assert(
            len({len(plan.bufsizes) for plan in plans}) == 1,
            "Different memory planning algorithms should have the same number of buffers allocated.",
        )
        best = min(plans, key=lambda plan: sum(plan.bufsizes))
        for spec, place in best.spec_dict.items():
            spec.mem_id, spec.mem_obj_id, spec.mem_offset = place.mem_id, place.mem_obj_id, place.mem_offset
        return best.bufsizes
