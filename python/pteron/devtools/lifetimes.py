"""What steps and instructions read and write, and how long each value is in memory.

What is read is found by bytes, not by value: views and outputs in place share memory with what others wrote.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from pteron.devtools.description import Call, MethodDescription, Step, TensorValue


@dataclass(frozen=True)
class Access:
    """The tensors that a step or an instruction reads and writes; `jump` is where it may go on."""

    reads: tuple[TensorValue, ...]
    writes: tuple[TensorValue, ...]
    jump: int | None = None


@dataclass
class Lifetime:
    """Bytes that one step or instruction wrote (None: they are there before all), to their last reader."""

    tensor: TensorValue
    writer: int | None
    first: int
    last: int


@dataclass(frozen=True)
class Flow:
    """Every lifetime of a method, those that each access reads, and each output with what wrote it."""

    edges: tuple[tuple[int, ...], ...]
    lifetimes: tuple[Lifetime, ...]
    outputs: tuple[tuple[TensorValue, int | None], ...]


def call_accesses(method: MethodDescription) -> list[Access]:
    """What the instructions of a file read and write."""
    seen: set[int] = set()
    found = []
    for call in method.calls:
        leaves = list(_leaves(method, call.args))
        count = _delegate_outputs(method, call, leaves, seen) if call.operator is None else 0
        reads, writes = _split(method, call.args, leaves, count)
        conditions = tuple(_leaves(method, [call.condition] if call.condition is not None else []))
        seen.update(tensor.index for tensor in leaves)
        found.append(Access(reads + conditions, writes, call.jump))
    return found


def step_accesses(plan: MethodDescription) -> list[Access]:
    """What the steps of a plan read and write."""
    first_step: dict[int, int] = {}
    for one in plan.steps:
        for at in one.calls:
            first_step.setdefault(at, one.index)
    seen: set[int] = set()
    found = []
    for step in plan.steps:
        calls = [plan.calls[at] for at in step.calls]
        leaves = list(_leaves(plan, step.args))
        delegate = next((call for call in calls if call.delegate is not None), None)
        if delegate is None:
            writes = tuple(tensor for tensor in leaves if tensor.index in step.written)
            reads = tuple(tensor for tensor in leaves if tensor.index not in step.written)
        else:
            reads, writes = _split(plan, step.args, leaves, _delegate_outputs(plan, delegate, leaves, seen))
        seen.update(tensor.index for tensor in leaves)
        reads += tuple(_leaves(plan, [call.condition for call in calls if call.condition is not None]))
        jumps = [first_step.get(call.jump) for call in calls if call.jump is not None]
        found.append(Access(reads, writes, jumps[0] if jumps else None))
    return found


def results_last(step: Step) -> tuple[int, ...]:
    """The arguments of a step with those that it writes behind all others, as those of calls are: load puts
    what a fused step adds behind the result.
    """
    return tuple(sorted(step.args, key=lambda arg: arg in step.written))


def flow_of(method: MethodDescription, accesses: Sequence[Access]) -> Flow:
    """Follows the accesses of a method in order."""
    memory = _Memory()
    present = [method.tensors[at] for at in method.inputs if at in method.tensors]
    state = [tensor for tensor in method.tensors.values() if tensor.is_state]
    for tensor in {tensor.index: tensor for tensor in (*state, *present)}.values():
        memory.write(tensor, None)
    edges = []
    for at, access in enumerate(accesses):
        found = [owner for tensor in access.reads for owner in memory.read(tensor, at)]
        edges.append(tuple(dict.fromkeys(found)))
        for tensor in access.writes:
            memory.write(tensor, at)
        if access.jump is not None and access.jump <= at:
            memory.repeat(accesses, access.jump, at)
    end = max(len(accesses) - 1, 0)
    outputs = []
    for index in method.outputs:
        if index in method.tensors:
            owners = memory.read(method.tensors[index], end)
            outputs.append((method.tensors[index], memory.lifetimes[owners[-1]].writer if owners else None))
    for tensor in state:
        memory.read(tensor, end)
    return Flow(tuple(edges), tuple(memory.lifetimes), tuple(outputs))


def _leaves(method: MethodDescription, args: Iterable[int]) -> Iterator[TensorValue]:
    """The tensors among arguments, each at its last place."""
    found = [tensor for arg in args for tensor in method.leaves(arg)]
    last = {tensor.index: at for at, tensor in enumerate(found)}
    return (tensor for at, tensor in enumerate(found) if last[tensor.index] == at)


def _delegate_outputs(
    method: MethodDescription, call: Call, leaves: list[TensorValue], seen: set[int]
) -> int:
    """How many of the last tensors of a delegate call are its results: those that no call had before."""
    known = seen | set(method.inputs)
    count = 0
    for tensor in reversed(leaves):
        if tensor.index in known or tensor.stored is not None:
            break
        count += 1
    return max(count, 1) if call.delegate is not None and leaves else 0


def _split(
    method: MethodDescription, args: Sequence[int], leaves: list[TensorValue], results: int
) -> tuple[tuple[TensorValue, ...], tuple[TensorValue, ...]]:
    """Arguments that are read, and those that are written: the last argument, a list of tensors included."""
    last = {tensor.index for tensor in method.leaves(args[-1])} if args else set()
    written = last | {tensor.index for tensor in leaves[len(leaves) - results :]}
    return (
        tuple(tensor for tensor in leaves if tensor.index not in written),
        tuple(tensor for tensor in leaves if tensor.index in written),
    )


@dataclass
class _Owners:
    """Which lifetime each byte of one arena belongs to: disjoint ranges in order."""

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)

    def _touched(self, start: int, end: int) -> tuple[int, int]:
        first = bisect_left(self.ends, start + 1)
        return first, bisect_left(self.starts, end, first)

    def read(self, start: int, end: int) -> list[int]:
        first, stop = self._touched(start, end)
        return self.owners[first:stop]

    def write(self, start: int, end: int, owner: int) -> None:
        first, stop = self._touched(start, end)
        left = [(self.starts[first], start, self.owners[first])] if first < stop else []
        right = [(end, self.ends[stop - 1], self.owners[stop - 1])] if first < stop else []
        kept = [one for one in (*left, (start, end, owner), *right) if one[0] < one[1]]
        self.starts[first:stop] = [one[0] for one in kept]
        self.ends[first:stop] = [one[1] for one in kept]
        self.owners[first:stop] = [one[2] for one in kept]


class _Memory:
    """Lifetimes, as accesses follow each other."""

    def __init__(self) -> None:
        self.lifetimes: list[Lifetime] = []
        self._arenas: dict[int, _Owners] = {}
        self._values: dict[int, int] = {}

    def write(self, tensor: TensorValue, node: int | None) -> None:
        at = len(self.lifetimes)
        self.lifetimes.append(Lifetime(tensor, node, node or 0, node or 0))
        if tensor.arena is None or tensor.offset is None:
            self._values[tensor.index] = at
        elif tensor.nbytes:
            owners = self._arenas.setdefault(tensor.arena, _Owners())
            owners.write(tensor.offset, tensor.offset + tensor.nbytes, at)

    def owners(self, tensor: TensorValue) -> list[int]:
        if tensor.arena is None or tensor.offset is None:
            return [self._values[tensor.index]] if tensor.index in self._values else []
        owners = self._arenas.get(tensor.arena)
        return owners.read(tensor.offset, tensor.offset + tensor.nbytes) if owners else []

    def read(self, tensor: TensorValue, node: int) -> list[int]:
        found = self.owners(tensor)
        for at in found:
            self.lifetimes[at].last = max(self.lifetimes[at].last, node)
        return found

    def repeat(self, accesses: Sequence[Access], start: int, end: int) -> None:
        """The accesses from `start` to `end` run again: what a round leaves to the next lives through all."""
        for access in accesses[start : end + 1]:
            for tensor in access.reads:
                for at in self.owners(tensor):
                    one = self.lifetimes[at]
                    one.last = max(one.last, end)
                    if one.writer is not None and one.writer >= start:
                        one.first = min(one.first, start)
