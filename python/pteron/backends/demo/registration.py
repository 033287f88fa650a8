"""Registers the run halves of the demo backends."""

from __future__ import annotations

from typing import Any, Literal

from pteron.backends.demo.compiler_demo_runtime import CompilerDemoRuntime
from pteron.backends.demo.executor_runtime import ExecutorRuntime


def register_demo_backends(
    runtime: Any = None, *, language: Literal["python", "rust"] = "python", replace: bool = False
) -> None:
    """Makes `BackendWithCompilerDemo` and `ExecutorBackend` available to a runtime.

    Args:
        runtime: the runtime to register with, None for the default one.
        language: which of the two implementations; they compute the same.
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
    pteron.register_backend(
        "BackendWithCompilerDemo", CompilerDemoRuntime(), runtime=runtime, replace=replace
    )
    pteron.register_backend("ExecutorBackend", ExecutorRuntime(runtime), runtime=runtime, replace=replace)
