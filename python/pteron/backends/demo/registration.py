"""Registers the run halves of the demo backends."""

from __future__ import annotations

from typing import Any

from pteron.backends.demo.compiler_demo_runtime import CompilerDemoRuntime
from pteron.backends.demo.executor_runtime import ExecutorRuntime


def register_demo_backends(runtime: Any = None, *, replace: bool = False) -> None:
    """Makes `BackendWithCompilerDemo` and `ExecutorBackend`, written in Python, available to a runtime.

    Args:
        runtime: the runtime to register with, None for the default one.
        replace: take the place of backends that are registered under these names, the Rust one among them.
    """
    import pteron

    pteron.register_backend(
        "BackendWithCompilerDemo", CompilerDemoRuntime(), runtime=runtime, replace=replace
    )
    pteron.register_backend("ExecutorBackend", ExecutorRuntime(runtime), runtime=runtime, replace=replace)
