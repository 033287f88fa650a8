"""The loaders of `executorch.extension.pybindings.portable_lib`, over `pteron.load`.

Names, arguments and results are ExecuTorch's. Where ExecuTorch crashes, returns memory that the next call
overwrites, or goes on with inputs of an earlier call, there is an error or a copy here;
`docs/how-to/executorch-runtime.md` lists the differences.

Programs run in the default runtime. The examples register no backend, so a program that names a demo backend
gets it: those that are not registered yet are registered with the default runtime when it is loaded.
"""

from __future__ import annotations

import os
from typing import Any

import pteron
from pteron import _native
from pteron.backends.demo.registration import register_missing_demo_backends
from pteron.compat.executorch_module import BundledModule, ExecuTorchModule
from pteron.compat.executorch_program import ExecuTorchMethod, ExecuTorchProgram
from pteron.errors import InputTypeError
from pteron.runtime import THREADS, MethodMeta, TensorInfo, Verification, recorder_of

__all__ = [
    "BundledModule",
    "ExecuTorchMethod",
    "ExecuTorchModule",
    "ExecuTorchProgram",
    "MethodMeta",
    "TensorInfo",
    "Verification",
    "_get_operator_names",
    "_get_registered_backend_names",
    "_is_available",
    "_load_bundled_program_from_buffer",
    "_load_for_executorch",
    "_load_for_executorch_from_buffer",
    "_load_for_executorch_from_bundled_program",
    "_load_program",
    "_load_program_from_buffer",
    "_threadpool_get_thread_count",
    "_unsafe_reset_threadpool",
]

_DEMO_BACKENDS = frozenset({"BackendWithCompilerDemo", "ExecutorBackend"})

#: Names of ExecuTorch's module that are not here, and why.
REFUSED = {
    "_load_for_executorch_from_data_loader": "a PyDataLoader is an object of C++; pass a path or bytes",
    "_create_profile_block": "calls are recorded with enable_etdump=True",
    "_dump_profile_results": "calls are recorded with enable_etdump=True",
    "_reset_profile_results": "calls are recorded with enable_etdump=True",
}


def __getattr__(name: str) -> Any:
    reason = f": {REFUSED[name]}" if name in REFUSED else ""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{reason}")


def _load_for_executorch(
    program_path: str | bytes | os.PathLike[str],
    data_path: str | bytes | os.PathLike[str] | None = None,
    enable_etdump: bool = False,
    debug_buffer_size: int = 0,
    program_verification: Verification = Verification.InternalConsistency,
) -> ExecuTorchModule:
    """Loads a program from a file, with its data file (`.ptd`). Bytes are a path here, as in `open`.

    Everything is verified, whichever `program_verification` is asked for. `enable_etdump`: calls are
    recorded, for `write_etdump_result_to_file`, with what the steps write where `debug_buffer_size` has bytes
    for it.

    Raises:
        FileNotFoundError: there is no such file.
        ProgramError, ExternalDataError: a file is damaged.
    """
    loaded = _load(_path(program_path), _path(data_path), program_verification)
    return ExecuTorchModule(loaded, recorder_of(loaded, enable_etdump, debug_buffer_size))


def _load_for_executorch_from_buffer(
    buffer: Any,
    data_map_buffer: Any = None,
    enable_etdump: bool = False,
    debug_buffer_size: int = 0,
    program_verification: Verification = Verification.InternalConsistency,
) -> ExecuTorchModule:
    """As `_load_for_executorch`, from the bytes of the program and of its data file.

    Raises:
        InputTypeError: a path is passed for one of them.
    """
    program, data = _buffer(buffer, "buffer"), _buffer(data_map_buffer, "data_map_buffer")
    loaded = _load(program, data, program_verification)
    return ExecuTorchModule(loaded, recorder_of(loaded, enable_etdump, debug_buffer_size))


def _load_for_executorch_from_bundled_program(
    module: BundledModule,
    data_map_buffer: Any = None,
    enable_etdump: bool = False,
    debug_buffer_size: int = 0,
) -> ExecuTorchModule:
    """The program of a bundled program, with the bytes of its data file."""
    data = _buffer(data_map_buffer, "data_map_buffer")
    loaded = _load(module.buffer, data, Verification.InternalConsistency)
    return ExecuTorchModule(loaded, recorder_of(loaded, enable_etdump, debug_buffer_size))


def _load_bundled_program_from_buffer(buffer: Any, non_const_pool_size: int = 16384) -> BundledModule:
    """Loads a bundled program from bytes. Memory is as large as the program needs, whatever
    `non_const_pool_size` says.
    """
    return BundledModule(_buffer(buffer, "buffer"))


def _load_program(
    path: str | bytes | os.PathLike[str],
    enable_etdump: bool = False,
    debug_buffer_size: int = 0,
    program_verification: Verification = Verification.Minimal,
    data_path: str | bytes | os.PathLike[str] | None = None,
) -> ExecuTorchProgram:
    """Loads a program from a file; its methods are loaded one by one. See `_load_for_executorch`."""
    loaded = _load(_path(path), _path(data_path), program_verification)
    return ExecuTorchProgram(loaded, recorder_of(loaded, enable_etdump, debug_buffer_size))


def _load_program_from_buffer(
    buffer: Any,
    enable_etdump: bool = False,
    debug_buffer_size: int = 0,
    program_verification: Verification = Verification.Minimal,
    data_path: str | bytes | os.PathLike[str] | None = None,
) -> ExecuTorchProgram:
    """As `_load_program`, from the bytes of the program."""
    loaded = _load(_buffer(buffer, "buffer"), _path(data_path), program_verification)
    return ExecuTorchProgram(loaded, recorder_of(loaded, enable_etdump, debug_buffer_size))


def _is_available(backend_name: str) -> bool:
    """Is the backend registered with the default runtime, and usable on this machine?"""
    return _native.Runtime.shared().is_available(backend_name)


def _get_operator_names() -> list[str]:
    """Full names of the operators that have a kernel, such as "aten::add.out"."""
    return list(_native.Runtime.shared().operators)


def _get_registered_backend_names() -> list[str]:
    """Names of the backends of the default runtime."""
    return list(_native.Runtime.shared().backends)


def _threadpool_get_thread_count() -> int:
    """Threads that a call uses at most."""
    return THREADS.count


def _unsafe_reset_threadpool(num_threads: int) -> None:
    """Calls from now on use at most so many threads, and never more than the pool has; nothing is unsafe.

    Raises:
        InputError: `num_threads` is below 1.
    """
    THREADS.set(num_threads)


def _path(path: str | bytes | os.PathLike[str] | None) -> str | None:
    """A path as text, so that the bytes of one are not taken for a program."""
    return None if path is None else os.fsdecode(path)


def _buffer(buffer: Any, argument: str) -> Any:
    """Bytes as they are; InputTypeError for a path, which `pteron.load` would open."""
    if isinstance(buffer, (str, os.PathLike)):
        raise InputTypeError(
            "a path is passed for the contents of a file",
            argument=argument,
            expected="bytes, or another buffer",
            got=type(buffer).__name__,
            hint="_load_for_executorch and _load_program take paths",
        )
    return buffer


def _load(source: Any, data: Any, verification: Verification) -> _native.Program:
    if not isinstance(verification, Verification):
        raise TypeError(f"program_verification must be a Verification, got {verification!r}")
    program = pteron.load(source, data=data)
    if any(_DEMO_BACKENDS & set(program.backends(method)) for method in program.methods):
        register_missing_demo_backends()
    return program
