"""What a program needs that is not here: kernels and backends."""

from __future__ import annotations

import pteron
from pteron import _native


def missing_operators(program: pteron.Program, runtime: pteron.Runtime | None = None) -> list[str]:
    """Operators without a kernel, of all methods, sorted."""
    known = set(runtime.operators if runtime is not None else _native.operator_names())
    return sorted({name for method in program.methods for name in program.operators(method)} - known)


def missing_backends(program: pteron.Program, runtime: pteron.Runtime | None = None) -> dict[str, str]:
    """Backends that are not there or not available, each with the reason and what helps."""
    where = runtime or pteron.Runtime.shared()
    out = {}
    for backend in sorted({name for method in program.methods for name in program.backends(method)}):
        if where.is_available(backend):
            continue
        reason = where.unavailable_reason(backend) or "not registered"
        offer = pteron.plugins.installed().get(backend)
        if offer is not None:
            reason += f"; {offer} is installed and provides it: --backend {backend} loads it"
        out[backend] = reason
    return out
