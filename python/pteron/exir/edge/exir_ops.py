"""`exir_ops.edge.aten.sin.default`: edge operators by attribute access.

`exir_ops.edge` mirrors `torch.ops`: namespace, operator, overload. An operator that PyTorch does not know
raises AttributeError on access, so a misspelt name is found where it is written. `exir_ops.backend` has the
operators of backend libraries.
"""

from __future__ import annotations

from collections.abc import Callable

from pteron.exir.edge.backend_ops import BACKEND_LIBRARIES, backend_packet
from pteron.exir.edge.edge_op_overload import EdgeOpOverloadPacket, edge_packet
from pteron.exir.edge.operators_on_demand import register_on_demand

register_on_demand()


class _OpNamespace:
    def __init__(
        self, dialect: str, name: str, packet_of: Callable[[str, str], EdgeOpOverloadPacket]
    ) -> None:
        self._dialect, self._name, self._packet_of = dialect, name, packet_of

    def __getattr__(self, opname: str) -> EdgeOpOverloadPacket:
        # Some operators are called `__rshift__`; `torch.ops` answers `__file__` itself. `copy` asks for
        # protocols of objects that have no fields yet.
        if opname == "__file__" or "_packet_of" not in vars(self):
            raise AttributeError(opname)
        packet = self._packet_of(self._name, opname)
        setattr(self, opname, packet)
        return packet

    def __repr__(self) -> str:
        return f"<exir_ops.{self._dialect}.{self._name}>"


class _DialectNamespace:
    def __init__(self, name: str, packet_of: Callable[[str, str], EdgeOpOverloadPacket]) -> None:
        self._dialect_name, self._packet_of = name, packet_of

    def __getattr__(self, namespace: str) -> _OpNamespace:
        if namespace.startswith("__"):
            raise AttributeError(namespace)
        if self._dialect_name == "backend" and namespace not in BACKEND_LIBRARIES:
            raise RuntimeError(f"{namespace} op library does not belong to backend ops.")
        found = _OpNamespace(self._dialect_name, namespace, self._packet_of)
        setattr(self, namespace, found)
        return found

    def __repr__(self) -> str:
        return f"<exir_ops.{self._dialect_name}>"


class _Ops:
    def __init__(self) -> None:
        self.edge = _DialectNamespace("edge", edge_packet)
        self.backend = _DialectNamespace("backend", backend_packet)

    def __repr__(self) -> str:
        return "<exir_ops>"


exir_ops = _Ops()
