"""Edge operators: what a call in an edge graph points at.

An edge operator wraps one overload of a PyTorch operator and is called like it. The wrapper exists so that
a graph says which dialect it is in: a graph whose targets are `EdgeOpOverload` objects has been through
`to_edge`, and every one of its operators is functional and has a known schema.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket

from pteron.exir.edge import custom_ops
from pteron.exir.edge.device_copies import LIBRARY_NAMESPACE as _COPY_LIBRARY
from pteron.exir.edge.device_copies import NAMESPACE as _COPY
from pteron.exir.edge.dim_order_ops import LIBRARY_NAMESPACE as _DIM_ORDER_LIBRARY
from pteron.exir.edge.dim_order_ops import NAMESPACE as _DIM_ORDER
from pteron.exir.edge.known_out_variants import LIBRARIES as _KNOWN_LIBRARIES
from pteron.exir.edge.quantized_out_variants import LIBRARY_NAMESPACE as _QUANTIZED_LIBRARY
from pteron.exir.edge.quantized_out_variants import NAMESPACE as _QUANTIZED

# Where the shown namespace of an operator differs from the torch library that implements it.
_LIBRARY_OF_NAMESPACE = {_DIM_ORDER: _DIM_ORDER_LIBRARY, _COPY: _COPY_LIBRARY}
_NAMESPACE_OF_LIBRARY = {
    **{library: shown for shown, library in _LIBRARY_OF_NAMESPACE.items()},
    _QUANTIZED_LIBRARY: _QUANTIZED,
    **{library: shown for shown, library in _KNOWN_LIBRARIES.items()},
}


class EdgeOpOverload:
    """One overload of one operator, for example `aten.add.Tensor`.

    Instances are unique per overload: compare with `is` or `==`, use them as dictionary keys. They survive
    `copy`, `deepcopy` and `pickle` as the same object.
    """

    shown_module = "executorch.exir.dialects.edge._ops"

    def __init__(self, op: OpOverload, packet: EdgeOpOverloadPacket) -> None:
        self._op = op
        self._packet = packet
        self._overload_name = op._overloadname
        # torch.fx reads these three to name nodes and to print the graph.
        self.__name__ = f"{packet.namespace}.{packet.opname}.{op._overloadname}"
        self.__qualname__ = self.__name__
        # The text of a graph's code is what tests and passes of vendors look for, so it is ExecuTorch's.
        self.__module__ = self.shown_module

    @property
    def _schema(self) -> torch._C.FunctionSchema:
        return self._op._schema

    @property
    def schema(self) -> torch._C.FunctionSchema:
        """The PyTorch schema: argument names, types, defaults and returns."""
        return self._op._schema

    @property
    def namespace(self) -> str:
        """The first part of the name, for example `aten`."""
        return self._packet.namespace

    @property
    def overload_name(self) -> str:
        """The last part of the name; `default` for the overload without a name."""
        return self._overload_name

    @property
    def overloadpacket(self) -> EdgeOpOverloadPacket:
        """All overloads of this operator."""
        return self._packet

    @property
    def _overloadpacket(self) -> EdgeOpOverloadPacket:
        return self._packet

    @property
    def _overloadname(self) -> str:
        return self._overload_name

    @property
    def tags(self) -> Any:
        """PyTorch's tags of the operator (`torch.Tag.core`, ...)."""
        return self._op.tags

    @property
    def aten_overload(self) -> OpOverload:
        """The PyTorch overload that this operator wraps."""
        return self._op

    def name(self) -> str:
        """The name as PyTorch spells it in schemas: `aten::add.Tensor`, or `aten::sin` for the default
        overload.
        """
        suffix = "" if self._overload_name == "default" else f".{self._overload_name}"
        return f"{self._packet.namespace}::{self._packet.opname}{suffix}"

    def to_out_variant(self) -> OpOverload:
        """The overload that writes its result into tensors given by the caller.

        Raises `MissingOutVariantError` where its library has none.
        """
        from pteron.exir.edge.out_variant import defined_out_variant

        return defined_out_variant(self._op)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._op(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<EdgeOpOverload {self.__name__}: {self._schema}>"

    def __str__(self) -> str:
        return self.__name__

    def __copy__(self) -> EdgeOpOverload:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> EdgeOpOverload:
        return self

    def __reduce__(self) -> tuple[Any, tuple[str, str, str]]:
        return edge_op_by_name, (self._packet.namespace, self._packet.opname, self._overload_name)


class EdgeOpOverloadPacket:
    """All overloads of one operator; attribute access gives an `EdgeOpOverload`."""

    overload_class: type[EdgeOpOverload] = EdgeOpOverload

    def __init__(self, namespace: str, packet: OpOverloadPacket) -> None:
        self.namespace = namespace
        self.opname = packet.__name__
        self.__name__ = f"{namespace}.{packet.__name__}"
        self._packet = packet
        self._qualified_op_name = f"{namespace}::{packet.__name__}"
        self._overloads: dict[str, EdgeOpOverload] = {}

    def __getattr__(self, overload_name: str) -> EdgeOpOverload:
        if overload_name.startswith("__"):
            raise AttributeError(overload_name)
        found = self._overloads.get(overload_name)
        if found is None:
            try:
                op = getattr(self._packet, overload_name)
            except AttributeError as error:
                known = ", ".join(self.overloads())
                raise AttributeError(
                    f"{self.__name__} has no overload {overload_name!r}; it has: {known}"
                ) from error
            found = self._overloads[overload_name] = self.overload_class(op, self)
        return found

    def overloads(self) -> list[str]:
        """Names of all overloads; the nameless one is called `default`."""
        return list(self._packet.overloads())  # type: ignore[no-untyped-call]

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._packet(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<EdgeOpOverloadPacket {self.__name__}>"

    def __copy__(self) -> EdgeOpOverloadPacket:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> EdgeOpOverloadPacket:
        return self


_packets: dict[tuple[str, str], EdgeOpOverloadPacket] = {}


def edge_packet(namespace: str, opname: str) -> EdgeOpOverloadPacket:
    """The packet `namespace.opname`. AttributeError where no such operator is registered with PyTorch."""
    found = _packets.get((namespace, opname))
    if found is None:
        library = getattr(torch.ops, _LIBRARY_OF_NAMESPACE.get(namespace, namespace))
        found = _packets[namespace, opname] = EdgeOpOverloadPacket(namespace, getattr(library, opname))
    return found


def edge_op_by_name(namespace: str, opname: str, overload_name: str) -> EdgeOpOverload:
    """The edge operator `namespace.opname.overload_name`."""
    found: EdgeOpOverload = getattr(edge_packet(namespace, opname), overload_name)
    return found


def edge_op_of(op: OpOverload) -> EdgeOpOverload:
    """The edge operator that wraps a PyTorch overload."""
    library = op.namespace
    return edge_op_by_name(
        _NAMESPACE_OF_LIBRARY.get(library, library), op._schema.name.split("::")[1], op._overloadname
    )


def emitted_name(op: OpOverload) -> tuple[str, str]:
    """Operator name and overload as a program file spells them: `("aten::add", "out")`, `("aten::copy_",
    "")`.
    """
    library, opname = op._schema.name.split("::")
    if library == custom_ops.LIBRARY_NAMESPACE:
        return custom_ops.shown_name(opname), op._schema.overload_name
    return f"{_NAMESPACE_OF_LIBRARY.get(library, library)}::{opname}", op._schema.overload_name
