"""`exir_ops.edge.aten.sin.default`: edge operators by attribute access.

`exir_ops.edge` mirrors `torch.ops`: namespace, operator, overload. An operator that PyTorch does not know
raises AttributeError on access, so a misspelt name is found where it is written.
"""

from __future__ import annotations

from pteron.exir.edge.edge_op_overload import EdgeOpOverloadPacket, edge_packet


class _Namespace:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, opname: str) -> EdgeOpOverloadPacket:
        if opname.startswith("__"):
            raise AttributeError(opname)
        packet = edge_packet(self._name, opname)
        setattr(self, opname, packet)
        return packet

    def __repr__(self) -> str:
        return f"<exir_ops.edge.{self._name}>"


class _EdgeOps:
    def __getattr__(self, namespace: str) -> _Namespace:
        if namespace.startswith("__"):
            raise AttributeError(namespace)
        found = _Namespace(namespace)
        setattr(self, namespace, found)
        return found

    def __repr__(self) -> str:
        return "<exir_ops.edge>"


class _ExirOps:
    def __init__(self) -> None:
        self.edge = _EdgeOps()

    def __repr__(self) -> str:
        return "<exir_ops>"


exir_ops = _ExirOps()
