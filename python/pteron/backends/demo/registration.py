"""Registers the run halves of the demo backends."""

from __future__ import annotations

import threading
from typing import Any, Literal

from pteron.backends.demo.compiler_demo_runtime import CompilerDemoRuntime
from pteron.backends.demo.delegate_mapping_runtime import DelegateMappingRuntime
from pteron.backends.demo.executor_runtime import ExecutorRuntime

_lock = threading.Lock()


def register_demo_backends(
    runtime: Any = None, *, language: Literal["python", "rust"] = "python", replace: bool = False
) -> None:
    """Makes `BackendWithCompilerDemo`, `BackendWithDelegateMappingDemo` and `ExecutorBackend` available to a
    runtime.

    Args:
        runtime: the runtime to register with, None for the default one.
        language: which of the two implementations; they compute the same. Programs lowered by
            `ExecutorBackend` with the compile spec `external_constants` need the one in Python.
        replace: take the place of backends that are registered under these names. Only for those in Python.
    """
    import pteron

    if language == "rust":
        if replace:
            raise ValueError(
                "register_demo_backends: replace=True is for language='python' only; use a new runtime"
            )
        from pteron import _native

        _native.register_demo_backends(runtime)
        return
    if language != "python":
        raise ValueError(f"register_demo_backends: language is 'python' or 'rust', got {language!r}")
    for name, backend in _run_halves(runtime).items():
        pteron.register_backend(name, backend, runtime=runtime, replace=replace)


def register_missing_demo_backends(runtime: Any = None) -> None:
    """Makes those demo backends that compute available to a runtime where they are not, in Python.

    Args:
        runtime: the runtime to register with, None for the default one.
    """
    import pteron
    from pteron import _native

    # Two threads that load their first programs at once must not both find the names free.
    with _lock:
        registered = (_native.Runtime.shared() if runtime is None else runtime).backends
        for name, backend in _run_halves(runtime).items():
            # Whoever wants the events of the mapping demo asks for it: its outputs are zeros.
            if name not in registered and not isinstance(backend, DelegateMappingRuntime):
                pteron.register_backend(name, backend, runtime=runtime)


def _run_halves(runtime: Any) -> dict[str, Any]:
    return {
        "BackendWithCompilerDemo": CompilerDemoRuntime(),
        "BackendWithDelegateMappingDemo": DelegateMappingRuntime(),
        "ExecutorBackend": ExecutorRuntime(runtime),
    }
