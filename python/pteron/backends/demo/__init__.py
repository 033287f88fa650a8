"""Backends for teaching and for tests: small, complete, and in two halves like every backend.

Compile half (needs torch): `BackendWithCompilerDemo`, `BackendWithDelegateMappingDemo`, `DemoBackend`,
`ExecutorBackend` and the demo partitioners. Run half (NumPy only): `CompilerDemoRuntime`, `ExecutorRuntime`,
`register_demo_backends`. Names are imported when they are first used, so that the run half never pulls in
torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "AddAttributePartitionerDemo": "op_partitioners",
    "AddMulPartitionerDemo": "op_partitioners",
    "AllNodesPartitionerDemo": "op_partitioners",
    "BackendWithCompilerDemo": "compiler_demo_backend",
    "BackendWithDelegateMappingDemo": "delegate_mapping_demo_backend",
    "CompilerDemoRuntime": "compiler_demo_runtime",
    "DemoBackend": "demo_backend",
    "ExecutorBackend": "executor_backend",
    "ExecutorRuntime": "executor_runtime",
    "NonDecompTestPartitioner": "op_partitioners",
    "register_demo_backends": "registration",
    "register_missing_demo_backends": "registration",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
