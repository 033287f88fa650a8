"""Which execution wrote what another one reads: by index of the value, and by place in planned memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pteron.devtools.recorded_run import RecordedRun

LISTS = ("TensorList", "OptionalTensorList", "IntList")
#: Puts the result of a round of a loop behind those of earlier rounds; before the first there is none.
COLLECTS = "executorch_prim::et_copy_index"
VIEWS = "executorch_prim::et_view"


@dataclass(frozen=True)
class Read:
    """A tensor that an execution reads. `writer` is the number of the execution that wrote these bytes last
    (-1: none did), as value `written`; `is_whole`: it wrote all of them.
    """

    value: int
    writer: int
    written: int
    is_whole: bool


@dataclass(frozen=True)
class Effects:
    """What an instruction names: values that it reads, and a number or truth value that it writes."""

    reads: tuple[int, ...]
    scalar: int | None
    named: tuple[int, ...]


class DataFlow:
    """The flow of one recorded run. `plan` is the method's `ExecutionPlan`."""

    def __init__(self, plan: Any, run: RecordedRun) -> None:
        self.plan, self.run = plan, run
        self.writes: dict[int, set[int]] = {}
        for execution in run.executions:
            self.writes.setdefault(execution.instruction, set()).update(execution.written)
        (chain,) = plan.chains
        self.effects = tuple(
            self._effects(at, instruction.instr_args) for at, instruction in enumerate(chain.instructions)
        )
        self.reads: tuple[tuple[Read, ...], ...] = tuple(self._flow())

    def is_tensor(self, at: int) -> bool:
        """Whether a value is a tensor."""
        return at in self.run.method.tensors

    def is_constant(self, at: int) -> bool:
        """Whether a tensor has stored bytes that no instruction changes."""
        tensor = self.run.method.tensors[at]
        return tensor.stored is not None and not tensor.is_state

    def is_view(self, instruction: int) -> bool:
        """Whether the result of an instruction is a name for bytes of its first argument."""
        (chain,) = self.plan.chains
        at = getattr(chain.instructions[instruction].instr_args, "op_index", None)
        return at is not None and self.plan.operators[at].name == VIEWS

    def overlaps(self, a: int, b: int) -> bool:
        """Whether two tensors share planned memory; a tensor without a place has its own."""
        if a == b:
            return True
        one, other = self.run.method.tensors[a], self.run.method.tensors[b]
        if one.offset is None or other.offset is None or one.arena != other.arena:
            return False
        return one.offset < other.offset + other.nbytes and other.offset < one.offset + one.nbytes

    def leaves(self, args: Sequence[int]) -> Iterator[int]:
        """Values, and the members of those that are lists."""
        for at in args:
            value = self.plan.values[at].val
            if type(value).__name__ in LISTS:
                yield from (item for item in value.items if item >= 0)
            else:
                yield at

    def _effects(self, at: int, call: Any) -> Effects:
        kind = type(call).__name__
        if kind == "MoveCall":
            target = None if self.is_tensor(call.move_to) else call.move_to
            return Effects((call.move_from,), target, (call.move_from, call.move_to))
        if kind == "JumpFalseCall":
            return Effects((call.cond_value_index,), None, (call.cond_value_index,))
        if kind == "FreeCall":
            return Effects((), None, (call.value_index,))
        named, written = tuple(call.args), self.writes.get(at, set())
        if kind == "DelegateCall":
            return Effects(tuple(v for v in self.leaves(named) if v not in written), None, named)
        operator = self.plan.operators[call.op_index]
        read: Sequence[int] = named
        scalar = None
        if operator.name == COLLECTS:
            read = named[1:]
        elif operator.name.endswith("_"):
            read = named[:-1]
        elif outs := _repeated([tuple(self.leaves([arg])) for arg in named]):
            read = named[: -2 * outs]
        elif named and written.intersection(self.leaves(named[-1:])):
            read = named[:-1]
        elif not written and named and not self.is_tensor(named[-1]):
            read, scalar = named[:-1], named[-1]
        return Effects(tuple(self.leaves(read)), scalar, named)

    def _flow(self) -> Iterator[tuple[Read, ...]]:
        tensors = self.run.method.tensors
        count = len(self.run.method.values)
        arena, start, end = (np.full(count, -1, np.int64) for _ in range(3))
        for at, tensor in tensors.items():
            if tensor.arena is not None and tensor.offset is not None:
                arena[at], start[at], end[at] = tensor.arena, tensor.offset, tensor.offset + tensor.nbytes
        last = np.full(count, -1, np.int64)
        for number, execution in enumerate(self.run.executions):
            yield tuple(
                self._read(at, last, arena, start, end)
                for at in dict.fromkeys(self.effects[execution.instruction].reads)
                if at in tensors and not self.is_constant(at)
            )
            last[list(execution.written)] = number

    def _read(self, at: int, last: Any, arena: Any, start: Any, end: Any) -> Read:
        if arena[at] < 0:
            return Read(at, int(last[at]), at, True)
        shared = np.flatnonzero((arena == arena[at]) & (start < end[at]) & (end > start[at]))
        if not shared.size:  # no bytes
            return Read(at, int(last[at]), at, True)
        newest = last[shared].max()
        writers = shared[last[shared] == newest]
        written = at if at in writers else int(writers[0])
        return Read(at, int(newest), written, bool(start[written] <= start[at] and end[written] >= end[at]))


def _repeated(args: Sequence[tuple[int, ...]]) -> int:
    """How many of the last arguments stand there twice: results, after the tensors for them."""
    return next((n for n in range(len(args) // 2, 0, -1) if args[-n:] == args[-2 * n : -n]), 0)
