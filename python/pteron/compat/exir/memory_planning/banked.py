"""Planning over memories of known sizes: the fastest bank with room, then the next.

`BankedGreedy` is an algorithm for `MemoryPlanningAlgorithmSuite`. With one bank it plans as `greedy` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export.graph_signature import ExportGraphSignature

from pteron.compat.exir.memory_planning.algorithms import (
    MemoryAlgoResult,
    MemoryPlanningAlgorithmSuite,
    SharedObject,
    SpecAllocResult,
    end_in_use,
    from_the_largest,
    lay_out,
    place_in_bases,
    taken_before,
)
from pteron.compat.exir.memory_planning.graph_specs import get_node_tensor_specs, span
from pteron.compat.exir.memory_planning.planning_pass import MemoryPlanningPass
from pteron.exir.edge.spec_names import ALIGNMENT
from pteron.exir.edge.tensor_spec import TensorSpec
from pteron.exir.schema import DeviceType

__all__ = [
    "Bank",
    "BankPlacementError",
    "BankedGreedy",
    "TargetMemoryMap",
    "banked_memory_planning_pass",
    "format_placement_report",
    "planned_mem_ids",
]


class BankPlacementError(Exception):
    """The banks cannot hold what a graph plans."""


@dataclass(frozen=True)
class Bank:
    """A memory of `size` bytes, `mem_id` in the file. `alignment` in bytes: a multiple of the graph's, or
    None for the graph's own.
    """

    name: str
    size: int
    mem_id: int
    alignment: int | None = None

    def __str__(self) -> str:
        return f"{self.name}(mem_id={self.mem_id}, size={self.size})"


class TargetMemoryMap:
    """The banks that a plan may fill, the fastest first. Memories without a bank hold what a pass puts there
    by `mem_id`, and nothing else.

    ValueError for no bank, equal names or numbers, sizes and alignments below 1, and memory 0, which is
    reserved.
    """

    def __init__(self, banks: Sequence[Bank]) -> None:
        if not banks:
            raise ValueError("A target memory map needs at least one bank")
        for what, values in (("bank names", [b.name for b in banks]), ("mem_ids", [b.mem_id for b in banks])):
            if len(set(values)) != len(values):
                raise ValueError(f"Duplicate {what} in target memory map: {values}")
        for bank in banks:
            if bank.size <= 0:
                raise ValueError(f"Bank {bank.name} has non-positive size {bank.size}")
            if bank.alignment is not None and bank.alignment < 1:
                raise ValueError(f"Bank {bank.name} has non-positive alignment {bank.alignment}")
            if bank.mem_id < 1:
                raise ValueError(f"Bank {bank.name} has mem_id {bank.mem_id}; planned banks start at 1")
        self.banks = list(banks)
        self._by_id = {bank.mem_id: bank for bank in banks}

    def mem_ids(self) -> list[int]:
        """Numbers of the banks, the fastest first."""
        return list(self._by_id)

    def manages(self, mem_id: int) -> bool:
        """Whether a memory is a bank."""
        return mem_id in self._by_id

    def bank(self, mem_id: int) -> Bank:
        """The bank with a number; ValueError where there is none."""
        if mem_id not in self._by_id:
            raise ValueError(f"mem_id {mem_id} is not in the target memory map")
        return self._by_id[mem_id]

    def mem_id(self, name: str) -> int:
        """The number of a bank; ValueError where none has the name."""
        for bank in self.banks:
            if bank.name == name:
                return bank.mem_id
        raise ValueError(f"No bank named {name!r} in the target memory map")

    def describe(self) -> str:
        """The banks on one line."""
        return ", ".join(map(str, self.banks))


class BankedGreedy:
    """Fills the banks of a map from the largest spec to the smallest, each into the first bank with room.

    Specs with a `mem_id` come first and stay in that memory; in a memory without a bank they are not
    counted. Specs with a `storage_base` lie where it lies.
    """

    def __init__(self, target: TargetMemoryMap, allow_overlapping_allocations: bool = True) -> None:
        self.target = target
        self.allow_overlapping_allocations = allow_overlapping_allocations
        self.__name__ = "banked_greedy"

    def __call__(
        self,
        alignment: int,
        specs: Iterable[TensorSpec],
        graph_module: torch.fx.GraphModule,
        graph_signature: ExportGraphSignature | None = None,
        extra_padding: int = 0,
    ) -> MemoryAlgoResult:
        """The plan. BankPlacementError where a spec fits nowhere, is of another device than the CPU, or where
        the alignment of a bank is no multiple of `alignment`.
        """
        specs = list(specs)
        self._require_plannable(specs, alignment)
        filling = _Filling(self, alignment, extra_padding, taken_before(graph_module))
        rooted = [spec for spec in specs if spec.storage_base is None]
        for spec in from_the_largest(spec for spec in rooted if spec.mem_id is not None):
            filling.place_pinned(spec)
        for spec in from_the_largest(spec for spec in rooted if spec.mem_id is None):
            filling.place(spec)
        result = filling.result
        inside = [spec for spec in specs if spec.storage_base is not None]
        for spec in inside:
            spec.realign(alignment)
            result.spec_dict[spec] = SpecAllocResult(0, 0, 0)
        place_in_bases(inside, filling.placed, result)
        result.bufsizes = lay_out(filling.objects, graph_module, extra_padding, result)
        return result

    def _require_plannable(self, specs: list[TensorSpec], alignment: int) -> None:
        for bank in self.target.banks:
            if bank.alignment is not None and bank.alignment % alignment:
                raise BankPlacementError(
                    f"Bank {bank.name} declares alignment {bank.alignment}, which is not a multiple of the "
                    f"graph's alignment {alignment}"
                )
        others = sorted({spec.device.name for spec in specs if spec.device is not DeviceType.CPU})
        if others:
            raise BankPlacementError(
                f"Banked memory planning supports CPU specs only, but this graph has specs on {others}"
            )


class _Filling:
    """Banks while they are filled: shared objects and bytes in use of each memory."""

    def __init__(self, planner: BankedGreedy, alignment: int, padding: int, taken: list[int]) -> None:
        self._target = planner.target
        self._may_lie_behind = planner.allow_overlapping_allocations
        self._alignment = alignment
        self._padding = padding
        self._used = {
            memory: taken[memory] if memory < len(taken) else 0 for memory in self._target.mem_ids()
        }
        self.objects: dict[int, list[SharedObject]] = {memory: [] for memory in self._used}
        self.placed: dict[TensorSpec, SharedObject] = {}
        self.result = MemoryAlgoResult({}, [])

    def place_pinned(self, spec: TensorSpec) -> None:
        """Place a spec in the memory that it states."""
        memory = spec.mem_id
        assert memory is not None
        if self._place(spec, memory):
            return
        bank = self._target.bank(memory)
        raise BankPlacementError(
            f"A {spec.allocated_memory}-byte buffer (shape {list(spec.shape)}) is pinned to bank {bank.name} "
            f"(mem_id={memory}), which has {bank.size - self._used[memory]} of {bank.size} bytes left. "
            "A pinned buffer has no fallback bank."
        )

    def place(self, spec: TensorSpec) -> None:
        """Place a spec in the first bank with room."""
        if any(self._place(spec, memory) for memory in self._target.mem_ids()):
            return
        free = ", ".join(
            f"{b.name} {b.size - self._used[b.mem_id]} of {b.size} free" for b in self._target.banks
        )
        raise BankPlacementError(
            f"No declared bank can hold a {spec.allocated_memory}-byte buffer (shape {list(spec.shape)}): "
            f"{free}. Undeclared pools are never used as spill targets. "
            f"Target memory map: {self._target.describe()}"
        )

    def _place(self, spec: TensorSpec, memory: int) -> bool:
        """Place a spec in a memory, if it has room."""
        is_bank = self._target.manages(memory)
        spec.realign((self._target.bank(memory).alignment if is_bank else None) or self._alignment)
        objects = self.objects.setdefault(memory, [])
        found = self._within(objects, spec)
        if found is None:
            cost = spec.allocated_memory + (0 if objects else self._padding)
            if is_bank and self._used[memory] + cost > self._target.bank(memory).size:
                return False
            if is_bank:
                self._used[memory] += cost
            found = SharedObject(len(objects), -1, spec.allocated_memory, *span(spec)), 0
            objects.append(found[0])
        shared, offset = found
        shared.place(offset, spec)
        self.placed[spec] = shared
        self.result.spec_dict[spec] = SpecAllocResult(memory, 0, 0)
        return True

    def _within(self, objects: list[SharedObject], spec: TensorSpec) -> tuple[SharedObject, int] | None:
        """An object that holds a spec without growing, and the offset in it."""
        ends = [(shared, end_in_use(shared, spec)) for shared in objects]
        for shared, end in ends:
            if end is None and spec.allocated_memory <= shared.size:
                return shared, 0
        for shared, end in ends if self._may_lie_behind else ():
            if end and end + spec.allocated_memory <= shared.size:
                return shared, end
        return None


def banked_memory_planning_pass(
    target: TargetMemoryMap,
    alignment: int = ALIGNMENT,
    allow_overlapping_allocations: bool = True,
    **kwargs: Any,
) -> MemoryPlanningPass:
    """A `MemoryPlanningPass` over the banks of `target`; `kwargs` are that pass's.

    Raises:
        ValueError: `share_mutable_buffers`, whose memory 2 is no bank.
    """
    if kwargs.get("share_mutable_buffers"):
        raise ValueError(
            "share_mutable_buffers is not supported with banked memory planning: shared buffers have a "
            "memory of their own"
        )
    planner = BankedGreedy(target, allow_overlapping_allocations)
    return MemoryPlanningPass(MemoryPlanningAlgorithmSuite([planner]), alignment=alignment, **kwargs)


def planned_mem_ids(graph_module: torch.fx.GraphModule) -> list[int]:
    """The memory of each planned spec of a graph, in order of the graph."""
    specs = dict.fromkeys(spec for node in graph_module.graph.nodes for spec in get_node_tensor_specs(node))
    return [spec.mem_id for spec in specs if not spec.const and spec.mem_id is not None]


def format_placement_report(
    target: TargetMemoryMap, bufsizes: Sequence[int], mem_ids: Iterable[int] = ()
) -> str:
    """A table of the banks: bytes in use of `bufsizes`, size, and specs of `planned_mem_ids` in each."""
    counted = list(mem_ids)
    header = f"  {'bank':<12}{'mem_id':>7}{'used':>12}{'size':>12}{'util':>8}{'buffers':>9}"
    lines, total = ["Memory bank placement:", header], 0
    for bank in target.banks:
        used = bufsizes[bank.mem_id] if bank.mem_id < len(bufsizes) else 0
        total += used
        lines.append(
            f"  {bank.name:<12}{bank.mem_id:>7}{used:>12}{bank.size:>12}{100 * used / bank.size:>7.1f}%"
            f"{counted.count(bank.mem_id):>9}"
        )
    return "\n".join([*lines, f"  total planned: {total} bytes over {len(target.banks)} banks"])
