"""One run of a method as its file has it: what each instruction wrote, and the values that it read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pteron._native import Program, TracedStep
from pteron.devtools.description import MethodDescription, TensorValue, describe, describe_plan
from pteron.devtools.program_file import ProgramFile


@dataclass(frozen=True)
class Execution:
    """One execution of an instruction of the file, with the tensors that it wrote by index of their value."""

    instruction: int
    written: tuple[int, ...]


class RecordedRun:
    """The executions of one run. `program` is `file` loaded with all rewrites switched off."""

    def __init__(self, file: ProgramFile, program: Program, method: str, inputs: Sequence[Any]) -> None:
        (chain,) = file.plan(method).chains
        self._chain = chain.instructions
        self.method: MethodDescription = describe(program).methods[method]
        self._program, self._name, self._inputs = program, method, list(inputs)
        self._plan = describe_plan(program, method)
        self._steps = [step.args for step in self._plan.steps]
        watch = _Executions(self)
        self.trace(watch)
        self.executions: tuple[Execution, ...] = tuple(watch.found)

    def values_at(self, wanted: Iterable[tuple[int, int]]) -> dict[tuple[int, int], npt.NDArray[Any]]:
        """Values right before executions: by index of the value and number of the execution.

        Raises:
            ValueError: the shape of a value is not known.
        """
        watch = _Values(self, wanted)
        self.trace(watch)
        return watch.values

    def tensor_of(self, step: TracedStep, position: int, seen: int) -> int | None:
        """The value of the file that a step wrote as its argument `position`, `seen` tensors of it before;
        None for values that load made.
        """
        args = self._steps[step.index]
        if position >= len(args):
            move = self._chain[step.instructions[-1]].instr_args if step.instructions else None
            at = getattr(move, "move_to", None)
        else:
            members = [tensor.index for tensor in self._plan.leaves(args[position])]
            at = members[min(seen, len(members) - 1)] if members else None
        return at if at in self.method.tensors else None

    def memory(self) -> Memory:
        """What a run begins with."""
        memory = Memory(self.method)
        for at, value in zip(self.method.inputs, self._inputs, strict=True):
            if at in self.method.tensors:
                memory.write(at, np.asarray(value))
        state = self._program.load_method(self._name, seed=0).get_state()
        for spec, at in zip(self._program.buffers(self._name), self.state, strict=True):
            memory.write(at, np.asarray(state[spec.name]))
        return memory

    @property
    def state(self) -> list[int]:
        """Mutable buffers by index of their value."""
        return [tensor.index for tensor in self.method.tensors.values() if tensor.is_state]

    def trace(self, tracer: Any) -> None:
        """The same run again, with another tracer."""
        self._program.load_method(self._name, seed=0).execute(self._inputs, tracer=tracer)


class Memory:
    """The bytes of planned memory and of tensors without a place, as a run leaves them."""

    def __init__(self, method: MethodDescription) -> None:
        self._method = method
        self._arenas = [np.zeros(size, np.uint8) for size in method.arenas]
        self._shapes: dict[int, tuple[int, ...]] = {}
        self._unplaced: dict[int, npt.NDArray[Any]] = {}
        # Places whose last tensor had its largest shape: another name of it has its own largest shape, too.
        self._is_full: dict[tuple[int, int], bool] = {}

    def write(self, at: int, array: npt.NDArray[Any]) -> None:
        """Value `at` becomes `array`."""
        tensor = self._method.tensors[at]
        self._shapes[at] = array.shape
        if tensor.arena is None or tensor.offset is None:
            self._unplaced[at] = array.copy()
            return
        self._is_full[tensor.arena, tensor.offset] = array.shape == tensor.shape
        order = tensor.dim_order or tuple(range(array.ndim))
        content = np.ascontiguousarray(array.transpose(order)).reshape(-1).view(np.uint8)
        self._arenas[tensor.arena][tensor.offset : tensor.offset + content.size] = content

    def read(self, at: int) -> npt.NDArray[Any]:
        """Value `at` now.

        Raises:
            ValueError: its shape is not known.
        """
        tensor = self._method.tensors[at]
        shape = self._shapes.get(at)
        place = tensor.arena or 0, tensor.offset or 0
        if shape is None and tensor.is_dynamic and not self._is_full.get(place, False):
            raise ValueError(f"the shape of value {at} is not known")
        shape = tensor.shape if shape is None else shape
        if tensor.arena is None or tensor.offset is None:
            return self._unplaced.get(at, np.zeros(shape, dtype_of(tensor)))
        dtype = dtype_of(tensor)
        nbytes = int(np.prod(shape)) * dtype.itemsize
        content = self._arenas[tensor.arena][tensor.offset : tensor.offset + nbytes].copy().view(dtype)
        order = tensor.dim_order or tuple(range(len(shape)))
        laid = content.reshape([shape[axis] for axis in order])
        return np.ascontiguousarray(laid.transpose(np.argsort(order))) if shape else laid


def dtype_of(tensor: TensorValue) -> np.dtype[Any]:
    """NumPy's element type.

    Raises:
        ValueError: NumPy has none.
    """
    try:
        return np.dtype(tensor.dtype)
    except TypeError:
        try:
            import ml_dtypes

            kind: np.dtype[Any] = np.dtype(getattr(ml_dtypes, tensor.dtype))
        except (ImportError, AttributeError):
            raise ValueError(f"NumPy has no {tensor.dtype}: pip install ml_dtypes") from None
        return kind


class _Executions:
    """The tracer of the first run. An instruction that load made several steps of is one execution."""

    def __init__(self, run: RecordedRun) -> None:
        self._of = run
        self.found: list[Execution] = []
        self._positions: list[int] = []

    def step_begin(self, step: TracedStep) -> None:
        self._positions = []
        if not step.instructions:
            return  # a copy of load's own
        at = step.instructions[-1]
        if not (step.parts and self.found and self.found[-1].instruction == at):
            self.begin(len(self.found))
            self.found.append(Execution(at, ()))

    def begin(self, number: int) -> None:
        """An execution begins."""

    def value(self, step: TracedStep, position: int, value: Any) -> None:
        at = self._of.tensor_of(step, position, self._positions.count(position))
        self._positions.append(position)
        if at is not None and self.found:
            last = self.found[-1]
            self.found[-1] = Execution(last.instruction, (*last.written, at))
            self.take(at, value)

    def take(self, at: int, value: Any) -> None:
        """Value `at` was written."""


class _Values(_Executions):
    """The tracer of later runs: keeps what was asked for."""

    def __init__(self, run: RecordedRun, wanted: Iterable[tuple[int, int]]) -> None:
        super().__init__(run)
        self._memory = run.memory()
        self._wanted: dict[int, list[int]] = {}
        for at, number in wanted:
            self._wanted.setdefault(number, []).append(at)
        self.values: dict[tuple[int, int], npt.NDArray[Any]] = {}

    def begin(self, number: int) -> None:
        for at in self._wanted.get(number, ()):
            self.values[at, number] = self._memory.read(at)

    def take(self, at: int, value: Any) -> None:
        self._memory.write(at, np.asarray(value))
