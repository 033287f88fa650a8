"""`BackendWithCompilerDemo`, run half in Python: executes what `compiler_demo_format` describes, with
NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pteron.backends.demo.compiler_demo_format import (
    DemoConstant,
    DemoFormatError,
    DemoInstruction,
    DemoWiring,
    read_blob,
    read_max_value,
    read_wiring,
    wiring_from_operators,
    wiring_key,
)

Array = npt.NDArray[np.float32]


class UnsupportedInstructionError(RuntimeError):
    """An instruction that this backend cannot execute.

    Attributes:
        debug_handle: of the instruction, in the lowered program; None where it has none.
        operator: name of its edge operator.
    """

    def __init__(self, instruction: DemoInstruction, reason: str = "") -> None:
        handle = instruction.debug_handle
        super().__init__(
            f"instruction demo::{instruction.operator}<debug_handle>{handle} is not supported, "
            f"debug handle is: {handle}{reason}"
        )
        self.debug_handle = handle if handle >= 0 else None
        self.operator = instruction.operator


class CompilerDemoRuntime:
    """The backend object: register it under the name `BackendWithCompilerDemo`."""

    def is_available(self) -> bool:
        """Always: it needs NumPy only."""
        return True

    def init(self, ctx: Any, processed: Any, compile_specs: Mapping[str, bytes]) -> CompilerDemoDelegate:
        """Reads and checks blob, wiring and constants.

        Raises:
            DemoFormatError: one of them is damaged, or `max_value` is above its limit.
        """
        if "max_value" in compile_specs:
            read_max_value(bytes(compile_specs["max_value"]))
        blob = bytes(processed)
        instructions = read_blob(blob)
        data = _named_data(ctx, wiring_key(blob))
        wiring = wiring_from_operators(instructions) if data is None else read_wiring(data, instructions)
        constants = [_read_constant(ctx, constant) for constant in wiring.constants]
        return CompilerDemoDelegate(instructions, wiring, constants)


class CompilerDemoDelegate:
    """One initialised program of the demo backend."""

    def __init__(
        self, instructions: list[DemoInstruction], wiring: DemoWiring, constants: list[npt.NDArray[Any]]
    ) -> None:
        self.num_outputs = len(wiring.outputs)
        self._instructions = instructions
        self._wiring = wiring
        self._constants = constants

    def execute(self, ctx: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Runs the instructions in order and writes the outputs.

        Raises:
            UnsupportedInstructionError: an instruction is not one of sin, mm and add in float32.
            ValueError: counts or shapes do not fit.
        """
        if len(inputs) != self._wiring.inputs:
            raise ValueError(f"demo delegate: expected {self._wiring.inputs} inputs, got {len(inputs)}")
        values: list[npt.NDArray[Any]] = [np.asarray(value) for value in inputs]
        values += self._constants
        for instruction, operation in zip(self._instructions, self._wiring.operations, strict=True):
            arguments = [
                values[argument] if isinstance(argument, int) else np.asarray(argument, np.float32)
                for argument in operation.arguments
            ]
            values.append(_compute(instruction, arguments, operation.alpha))
        # All results exist before the first output is written, so outputs may share memory with inputs.
        results = [np.array(values[number]) for number in self._wiring.outputs]
        for output, result in zip(outputs, results, strict=True):
            store_output(output, result)


def store_output(output: Any, result: npt.NDArray[Any]) -> None:
    """Writes a result, of whatever shape it came out, into an output of a delegate call.

    Raises:
        PteronError: the output cannot take that shape.
        TypeError: it has another dtype.
    """
    if tuple(output.shape) != result.shape:
        output.resize(result.shape)
    np.copyto(np.asarray(output), result, casting="no")


def _compute(instruction: DemoInstruction, arguments: list[npt.NDArray[Any]], alpha: float) -> Array:
    if instruction.operator not in _KERNELS:
        raise UnsupportedInstructionError(instruction)
    for argument in arguments:
        if argument.dtype != np.float32 or instruction.dtype != "torch.float32":
            raise UnsupportedInstructionError(
                instruction,
                f" (expected float32 for arguments and result, got {argument.dtype} and {instruction.dtype})",
            )
    count, kernel = _KERNELS[instruction.operator]
    if len(arguments) != count:
        raise DemoFormatError(
            f"demo wiring: {instruction.operator} takes {count} arguments, got {len(arguments)}"
        )
    return np.asarray(kernel(arguments, np.float32(alpha)), np.float32)


def _sin(arguments: list[Array], alpha: np.float32) -> Array:
    x = arguments[0]
    return np.asarray(x - (x * x * x) / np.float32(6))


def _add(arguments: list[Array], alpha: np.float32) -> Array:
    a, b = arguments
    return np.asarray(a + b) if alpha == 1 else np.asarray(a + alpha * b)


def _mm(arguments: list[Array], alpha: np.float32) -> Array:
    a, b = arguments
    if a.ndim != 2 or b.ndim != 2:
        raise ValueError(f"demo delegate: mm takes two matrices, got shapes {a.shape} and {b.shape}")
    return np.asarray(a @ b)


_KERNELS = {"aten.sin.default": (1, _sin), "aten.add.Tensor": (2, _add), "aten.mm.default": (2, _mm)}


def _named_data(ctx: Any, key: str) -> bytes | None:
    try:
        found = ctx.named_data(key)
    except KeyError:
        return None
    return None if found is None else bytes(found)


def _read_constant(ctx: Any, constant: DemoConstant) -> npt.NDArray[Any]:
    data = _named_data(ctx, constant.key)
    if data is None:
        raise DemoFormatError(f"demo wiring: constant {constant.key} is not in the program's named data")
    try:
        dtype = np.dtype(constant.dtype).newbyteorder("<")
    except TypeError as error:
        raise DemoFormatError(f"demo wiring: constant of unknown dtype {constant.dtype!r}") from error
    expected = math.prod(constant.shape) * dtype.itemsize
    if len(data) != expected:
        raise DemoFormatError(
            f"demo wiring: constant {constant.key}: expected {expected} bytes, got {len(data)}"
        )
    return np.frombuffer(data, dtype).reshape(constant.shape)
