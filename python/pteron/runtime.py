"""The run half as users of ExecuTorch know it: `Runtime.get().load_program(p).load_method("forward")`.

A thin layer over `pteron.load`; new code is better off with that.
"""

from __future__ import annotations

import enum
import functools
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from pteron import _native
from pteron.errors import InputError, PteronError
from pteron.program_source import load
from pteron.scalar_types import SCALAR_TYPES
from pteron.torch_form import outputs_without_tensor_inputs

if TYPE_CHECKING:
    from pteron.devtools.etdump.recorder import EtdumpRecorder

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

    def __int__(self) -> int:
        return int(self.value)

    def __index__(self) -> int:
        return int(self.value)


#: What ExecuTorch calls element types in texts.
_DTYPE_NAMES = {
    "uint8": "Byte",
    "int8": "Char",
    "int16": "Short",
    "int32": "Int",
    "int64": "Long",
    "float16": "Half",
    "float32": "Float",
    "float64": "Double",
    "bool": "Bool",
    "bfloat16": "BFloat16",
    "uint16": "UInt16",
    "uint32": "UInt32",
    "uint64": "UInt64",
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
        return SCALAR_TYPES[self._spec.dtype]

    def nbytes(self) -> int:
        """Bytes at the upper bound."""
        return self._spec.nbytes or 0

    def is_memory_planned(self) -> bool:
        """Does the program place the tensor in memory of its own?"""
        return bool(self._spec.is_planned)

    def __repr__(self) -> str:
        dtype = str(self._spec.dtype)
        return (
            f"TensorInfo(sizes={list(self.sizes())}, dtype={_DTYPE_NAMES.get(dtype, dtype)}, "
            f"is_memory_planned={self.is_memory_planned()}, nbytes={self.nbytes()})"
        )


class MethodMeta:
    """What a method takes and gives."""

    def __init__(self, program: _native.Program, name: str) -> None:
        self._name = name
        self._inputs = program.inputs(name)
        self._outputs = program.outputs(name)
        self._attributes = program.buffers(name)

    def name(self) -> str:
        """Name of the method."""
        return self._name

    def num_inputs(self) -> int:
        """Number of flat inputs."""
        return len(self._inputs)

    def num_outputs(self) -> int:
        """Number of flat outputs."""
        return len(self._outputs)

    def num_attributes(self) -> int:
        """Number of mutable buffers that the method itself keeps."""
        return len(self._attributes)

    def input_tensor_meta(self, index: int) -> TensorInfo:
        """The input tensor at `index`; IndexError beyond, and where another kind of value stands."""
        return _tensor_info(self._inputs, index, "input")

    def output_tensor_meta(self, index: int) -> TensorInfo:
        """The output tensor at `index`; IndexError beyond, and where another kind of value stands."""
        return _tensor_info(self._outputs, index, "output")

    def attribute_tensor_meta(self, index: int) -> TensorInfo:
        """The mutable buffer at `index`; IndexError beyond."""
        return _tensor_info(self._attributes, index, "attribute")

    def __repr__(self) -> str:
        inputs, outputs = (
            [str(TensorInfo(spec) if spec.kind == "tensor" else spec) for spec in specs]
            for specs in (self._inputs, self._outputs)
        )
        return (
            f"MethodMeta(name={self._name!r}, num_inputs={len(inputs)}, input_tensor_meta={inputs}, "
            f"num_outputs={len(outputs)}, output_tensor_meta={outputs})"
        )


def _tensor_info(specs: tuple[_native.ValueSpec, ...], index: int, what: str) -> TensorInfo:
    if not 0 <= index < len(specs):
        raise IndexError(f"{what} {index} of {len(specs)}")
    if specs[index].kind != "tensor":
        raise IndexError(f"{what} {index} is no tensor: {specs[index]!r}")
    return TensorInfo(specs[index])


class ThreadLimit:
    """How many threads the methods of this module use: process-wide, as ExecuTorch's pool is."""

    def __init__(self) -> None:
        self._limit: int | None = None

    @property
    def count(self) -> int:
        """Threads that a call uses at most."""
        available = _native.Runtime.shared().num_threads
        return available if self._limit is None else min(self._limit, available)

    def set(self, count: int) -> None:
        """Calls from now on use at most `count` threads, and never more than the runtime's pool has.

        Raises:
            InputError: `count` is below 1.
        """
        if count < 1:
            raise InputError(
                "a call cannot run on no threads",
                argument="num_threads",
                expected="at least 1",
                got=str(count),
            )
        self._limit = count

    @property
    def for_a_call(self) -> int | None:
        """What a call is told: None while nobody set a limit."""
        return self._limit


THREADS = ThreadLimit()


class Sessions:
    """The sessions of a program: one for each method, made when it is first asked for.

    Methods whose program gives them one memory for their mutable buffers have one copy of them, as in
    ExecuTorch. With a `recorder`, what is loaded and called is recorded.
    """

    def __init__(self, program: _native.Program, recorder: EtdumpRecorder | None = None) -> None:
        self.program = program
        self.recorder = recorder
        self._sessions: dict[str, _native.Method] = {}

    def execute(self, name: str, inputs: Iterable[Any]) -> list[Any]:
        """Calls a method, in as many threads as the limit allows."""
        call: Callable[..., list[Any]] = self.get(name).execute
        if self.recorder is not None:
            call = functools.partial(self.recorder.execute, self.get(name))
        return call(inputs, num_threads=THREADS.for_a_call)

    def get(self, name: str) -> _native.Method:
        """The session of the method `name`, the same one each time; MethodNotFoundError without one."""
        if name not in self._sessions:
            start = time.perf_counter_ns()
            together = self._with_common_buffers(name)
            if len(together) > 1:
                self._load_together(together)
            if name not in self._sessions:
                self._sessions[name] = self.program.load_method(name)
            if self.recorder is not None:
                self.recorder.loaded(start, time.perf_counter_ns())
        return self._sessions[name]

    def takes_tensors(self, name: str) -> bool:
        """Is one of the method's inputs a tensor? Then those of a call tell what form its results have."""
        return any(spec.kind == "tensor" for spec in self.program.inputs(name))

    def _with_common_buffers(self, name: str) -> list[str]:
        """The methods that have a buffer of a name in common with `name`, or with one that has."""
        names = {method: {b.name for b in self.program.buffers(method)} for method in self.program.methods}
        group, known = {name}, names.get(name, set())
        while True:
            found = {method for method, buffers in names.items() if buffers & known} - group
            if not found:
                return [method for method in names if method in group]
            group |= found
            known = known.union(*(names[method] for method in found))

    def _load_together(self, methods: list[str]) -> None:
        try:
            self._sessions.update(self.program.load_methods(methods))
        except InputError as error:
            # Each has buffers of its own, which only their names have in common.
            if error.argument != "methods":
                raise


class Method:
    """A loaded method."""

    def __init__(self, sessions: Sessions, name: str) -> None:
        sessions.get(name)
        self._sessions = sessions
        self._name = name
        self._takes_tensors = sessions.takes_tensors(name)
        self._metadata = MethodMeta(sessions.program, name)

    def execute(self, inputs: Sequence[Any]) -> list[Any]:
        """Runs with a flat sequence of inputs; gives a flat list of outputs that own their memory.

        torch tensors where one came in, else NumPy arrays. A method that takes no tensors gives torch tensors
        where torch is loaded, as in ExecuTorch.
        """
        outputs = self._sessions.execute(self._name, inputs)
        return outputs if self._takes_tensors else outputs_without_tensor_inputs(outputs, inputs)

    @property
    def metadata(self) -> MethodMeta:
        """What the method takes and gives."""
        return self._metadata


class WithEtdump:
    """What can write the record of its calls, where it was loaded with `enable_etdump=True`."""

    _sessions: Sessions

    def write_etdump_result_to_file(
        self,
        etdump_path: str | os.PathLike[str],
        debug_buffer_path: str | os.PathLike[str] | None = None,
    ) -> None:
        """Writes what was recorded so far: the spans of all steps, and with a debug buffer the bytes of what
        they wrote.

        Raises:
            PteronError: nothing was recorded, since `enable_etdump` was not asked for.
            OSError: a file cannot be written.
        """
        if self._sessions.recorder is None:
            raise PteronError("No etdump found", hint="load the program with enable_etdump=True")
        self._sessions.recorder.write(etdump_path, debug_buffer_path)


class Program(WithEtdump):
    """A loaded program, which loads each of its methods once. Methods that share mutable buffers have one
    copy of them.
    """

    def __init__(self, program: _native.Program, recorder: EtdumpRecorder | None = None) -> None:
        self._program = program
        self._sessions = Sessions(program, recorder)
        self._methods: dict[str, Method] = {}

    @property
    def method_names(self) -> set[str]:
        """Names of the methods."""
        return set(self._program.methods)

    def load_method(self, name: str) -> Method:
        """The method of that name, the same object each time; MethodNotFoundError without one."""
        if name not in self._methods:
            self._methods[name] = Method(self._sessions, name)
        return self._methods[name]

    def metadata(self, method_name: str) -> MethodMeta:
        """What a method takes and gives, without loading it."""
        return MethodMeta(self._program, method_name)


def recorder_of(
    program: _native.Program, enable_etdump: bool, debug_buffer_size: int
) -> EtdumpRecorder | None:
    """What records the calls of a program's methods; None where that is not asked for."""
    if not enable_etdump:
        return None
    from pteron.devtools.etdump.recorder import EtdumpRecorder

    return EtdumpRecorder(program, debug_buffer_size=debug_buffer_size)


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
        enable_etdump: bool = False,
        debug_buffer_size: int = 0,
        data_path: str | os.PathLike[str] | None = None,
    ) -> Program:
        """Loads a program from its bytes, a path, or a binary file, with the data file (`.ptd`) at
        `data_path` where it keeps data in one. Everything is verified at load, whichever `verification` is
        asked for. `enable_etdump`: calls are recorded, for `Program.write_etdump_result_to_file`, with what
        the steps write where `debug_buffer_size` has bytes for it.
        """
        if not isinstance(verification, Verification):
            raise TypeError(f"verification must be a pteron.runtime.Verification, got {verification!r}")
        program = load(data, data=data_path)
        return Program(program, recorder_of(program, enable_etdump, debug_buffer_size))
