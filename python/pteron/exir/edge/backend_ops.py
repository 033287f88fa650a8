"""Backend operators: operators of a vendor's own library that stand for a pattern of edge operators.

`exir_ops.backend` has them, for libraries that `bind_pattern_to_op` was called with and a few that come with
PyTorch. One is an `EdgeOpOverload`, so passes and the verifier treat it as one; beyond that it knows the
callable that it stands for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._C import DispatchKey
from torch._ops import OpOverload, OpOverloadPacket
from torchgen.model import FunctionSchema

from pteron.exir.edge.edge_op_overload import EdgeOpOverload, EdgeOpOverloadPacket

#: Libraries whose operators are backend operators.
BACKEND_LIBRARIES = ["executorch_prim", "quantized_decomposed", "DO_NOT_USE_TEST_ONLY"]

_KERNELS = (
    DispatchKey.CompositeExplicitAutograd,
    DispatchKey.CompositeImplicitAutograd,
    DispatchKey.Meta,
)


class BackendOpOverload(EdgeOpOverload):
    """An overload of a backend operator. `_equivalent_callable`: what it stands for, None where it is
    itself.
    """

    shown_module = "executorch.exir.dialects.backend._ops"

    def __init__(self, op: OpOverload, packet: EdgeOpOverloadPacket) -> None:
        if not any(op.has_kernel_for_dispatch_key(key) for key in _KERNELS):
            raise AssertionError(
                "A backend op must contain either CompositeExplicitAutograd or Meta or "
                f"CompositeImplicitAutograd kernel, and {op} has none"
            )
        super().__init__(op, packet)
        self._equivalent_callable: Callable[..., Any] | None = None

    def __reduce__(self) -> tuple[Any, tuple[str, str, str]]:
        return _by_name, (self.namespace, self._packet.opname, self._overload_name)


class BackendOpOverloadPacket(EdgeOpOverloadPacket):
    """All overloads of one backend operator."""

    overload_class = BackendOpOverload


_packets: dict[tuple[str, str], BackendOpOverloadPacket] = {}


def backend_packet(namespace: str, opname: str) -> BackendOpOverloadPacket:
    """The packet `namespace.opname`. AttributeError where no such operator is registered with PyTorch."""
    found = _packets.get((namespace, opname))
    if found is None:
        packet: OpOverloadPacket = getattr(getattr(torch.ops, namespace), opname)
        found = _packets[namespace, opname] = BackendOpOverloadPacket(namespace, packet)
    return found


def backend_op_if_bound(op: OpOverload) -> Any:
    """The backend operator of a PyTorch overload where somebody has asked for it before; else `op` itself."""
    packet = _packets.get((op.namespace, op._schema.name.split("::")[1]))
    return op if packet is None else packet._overloads.get(op._overloadname, op)


def _by_name(namespace: str, opname: str, overload_name: str) -> Any:
    return getattr(backend_packet(namespace, opname), overload_name)


def bind_pattern_to_op(
    library: Any, schema_or_name: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the function is what an operator of `library` stands for.

    Args:
        library: a `torch.library.Library`; it becomes one of backend operators.
        schema_or_name: a schema, which is defined, or the name of an operator that is defined already.

    Where the operator has no kernel that traces it, the function becomes its kernel, so that a graph with the
    operator can be exported again as the pattern.
    """

    def bind(pattern: Callable[..., Any]) -> Callable[..., Any]:
        if library.ns not in BACKEND_LIBRARIES:
            BACKEND_LIBRARIES.append(library.ns)
        text = schema_or_name.split("::")[-1]
        if "(" in text:
            parsed = FunctionSchema.parse(text)
            name, overload = parsed.name.name.base, parsed.name.overload_name
            library.define(text)
        else:
            name, _, overload = text.partition(".")
        op = getattr(getattr(getattr(torch.ops, library.ns), name), overload or "default")
        if not any(op.has_kernel_for_dispatch_key(key) for key in _KERNELS):
            library.impl(f"{name}.{overload}" if overload else name, pattern, "CompositeImplicitAutograd")
        getattr(backend_packet(library.ns, name), overload or "default")._equivalent_callable = pattern
        return pattern

    return bind
