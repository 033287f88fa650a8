"""Which operators this package's runtime has a kernel for."""

from __future__ import annotations

import functools

from torch._ops import OpOverload

from pteron.errors import MissingOutVariantError
from pteron.exir.edge.edge_op_overload import emitted_name
from pteron.exir.edge.out_variant import out_variant


@functools.cache
def has_kernel(op: OpOverload) -> bool:
    """Whether the kernel table holds the out variant of a functional overload."""
    try:
        name, overload = emitted_name(out_variant(op))
    except MissingOutVariantError:
        return False
    return (f"{name}.{overload}" if overload else name) in _names()


@functools.cache
def _names() -> frozenset[str]:
    from pteron import _native

    return frozenset(_native.operator_names())
