"""The run half as users of ExecuTorch know it: `Runtime.get().load_program(p).load_method("forward")`.

A thin layer over `pteron.load`; new code is better off with that.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Sequence
from typing import Any, BinaryIO

from pteron import _native

__all__ = [
    "BackendRegistry",
    "Method",
    "MethodMeta",
    "OperatorRegistry",
    "Program",
    "Runtime",
    "TensorInfo",
    "Verification",
]


class Verification(enum.Enum):
    """How much of a program is checked at load. Everything is, always; both names are accepted."""

    Minimal = 0
    InternalConsistency = 1


_DTYPE_CODES = {
    "uint8": 0,
    "int8": 1,
    "int16": 2,
    "int32": 3,
    "int64": 4,
    "float16": 5,
    "float32": 6,
    "float64": 7,
    "complex32": 8,
    "complex64": 9,
    "complex128": 10,
    "bool": 11,
    "bfloat16": 15,
    "bits16": 22,
    "float8_e5m2": 23,
    "float8_e4m3fn": 24,
    "float8_e5m2fnuz": 25,
    "float8_e4m3fnuz": 26,
    "uint16": 27,
    "uint32": 28,
    "uint64": 29,
}


class TensorInfo:
    """What is known about a tensor before a run; extents that vary are given by their upper bound."""

    def __init__(self, spec: _native.ValueSpec) -> None:
        self._spec = spec

    def sizes(self) -> tuple[int, ...]:
        """Extents, outermost first."""
        shape = self._spec.shape or ()
        return tuple(d if isinstance(d, int) else d.max for d in shape)

    def dtype(self) -> int:
        """The file format's number of the element type (float32 is 6)."""
        assert self._spec.dtype is not None
        return _DTYPE_CODES[self._spec.dtype]

    def nbytes(self) -> int:
        """Bytes at the upper bound."""
        return self._spec.nbytes or 0

    def is_memory_planned(self) -> bool:
        """Does the program place the tensor in memory of its own?"""
        return bool(self._spec.is_planned)

    def __repr__(self) -> str:
        return (
            f"TensorInfo(sizes={list(self.sizes())}, dtype={self._spec.dtype}, "
            f"is_memory_planned={self.is_memory_planned()}, nbytes={self.nbytes()})"
        )


class MethodMeta:
    """What a method takes and gives."""

    def __init__(self, program: _native.Program, name: str) -> None:
        self._name = name
        self._inputs = program.inputs(name)
        self._outputs = program.outputs(name)

    def name(self) -> str:
        """Name of the method."""
        return self._name

    def num_inputs(self) -> int:
        """Number of flat inputs."""
        return len(self._inputs)

    def num_outputs(self) -> int:
        """Number of flat outputs."""
        return len(self._outputs)

    def input_tensor_meta(self, index: int) -> TensorInfo:
        """The input tensor at `index`; TypeError where another kind of value stands, IndexError beyond."""
        return _tensor_info(self._inputs, index, "input")

    def output_tensor_meta(self, index: int) -> TensorInfo:
        """The output tensor at `index`; TypeError where another kind of value stands, IndexError beyond."""
        return _tensor_info(self._outputs, index, "output")

    def __repr__(self) -> str:
        inputs = ", ".join(map(repr, self._inputs))
        outputs = ", ".join(map(repr, self._outputs))
        return f"MethodMeta(name={self._name!r}, inputs=[{inputs}], outputs=[{outputs}])"


def _tensor_info(specs: tuple[_native.ValueSpec, ...], index: int, what: str) -> TensorInfo:
    if not 0 <= index < len(specs):
        raise IndexError(f"{what} {index} of {len(specs)}")
    if specs[index].kind != "tensor":
        raise TypeError(f"{what} {index} is no tensor: {specs[index]!r}")
    return TensorInfo(specs[index])


class Method:
    """A loaded method."""

    def __init__(self, program: _native.Program, name: str) -> None:
        self._method = program.load_method(name)
        self._metadata = MethodMeta(program, name)

    def execute(self, inputs: Sequence[Any]) -> list[Any]:
        """Runs with a flat sequence of inputs; gives a flat list of outputs that own their memory."""
        return self._method.execute(inputs)

    @property
    def metadata(self) -> MethodMeta:
        """What the method takes and gives."""
        return self._metadata


class Program:
    """A loaded program, which loads each of its methods once."""

    def __init__(self, program: _native.Program) -> None:
        self._program = program
        self._methods: dict[str, Method] = {}

    @property
    def method_names(self) -> set[str]:
        """Names of the methods."""
        return set(self._program.methods)

    def load_method(self, name: str) -> Method:
        """The method of that name, the same object each time; MethodNotFoundError without one."""
        if name not in self._methods:
            self._methods[name] = Method(self._program, name)
        return self._methods[name]

    def metadata(self, method_name: str) -> MethodMeta:
        """What a method takes and gives, without loading it."""
        return MethodMeta(self._program, method_name)


class BackendRegistry:
    """The backends that programs can use."""

    def __init__(self, runtime: _native.Runtime) -> None:
        self._runtime = runtime

    @property
    def registered_backend_names(self) -> list[str]:
        """Names of all registered backends."""
        return list(self._runtime.backends)

    def is_available(self, backend_name: str) -> bool:
        """Is the backend registered, and usable on this machine?"""
        return self._runtime.is_available(backend_name)


class OperatorRegistry:
    """The operators that have a kernel."""

    def __init__(self, runtime: _native.Runtime) -> None:
        self._runtime = runtime

    @property
    def operator_names(self) -> set[str]:
        """Full names, such as "aten::add.out"."""
        return set(self._runtime.operators)


class Runtime:
    """The process-wide runtime; get it with `Runtime.get()`."""

    _instance: Runtime | None = None

    def __init__(self) -> None:
        runtime = _native.Runtime.shared()
        self.backend_registry = BackendRegistry(runtime)
        self.operator_registry = OperatorRegistry(runtime)

    @staticmethod
    def get() -> Runtime:
        """The one instance."""
        if Runtime._instance is None:
            Runtime._instance = Runtime()
        return Runtime._instance

    def load_program(
        self,
        data: bytes | bytearray | memoryview | BinaryIO | str | os.PathLike[str],
        *,
        verification: Verification = Verification.InternalConsistency,
        data_path: str | os.PathLike[str] | None = None,
    ) -> Program:
        """Loads a program from its bytes, a path, or a binary file, with the data file (`.ptd`) at
        `data_path` where it keeps data in one. Everything is verified at load, whichever `verification` is
        asked for.
        """
        if not isinstance(verification, Verification):
            raise TypeError(f"verification must be a pteron.runtime.Verification, got {verification!r}")
        return Program(_native.load(data, data=data_path))
