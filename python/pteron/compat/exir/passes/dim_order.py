"""Operators with a memory format as operators with a dimension order, and back."""

from __future__ import annotations

from typing import Any

import torch

from pteron.compat.exir.dim_order_utils import get_dim_order
from pteron.exir.edge.dim_order_ops import memory_format_of
from pteron.exir.edge.exir_ops import exir_ops
from pteron.exir.passes.export_pass import ExportPass
from pteron.exir.passes.proxy_value import NodeMetadata, ProxyValue

DimOrderOpsMap = {
    exir_ops.edge.aten._to_copy.default: exir_ops.edge.dim_order_ops._to_dim_order_copy.default,
    exir_ops.edge.aten.empty.memory_format: exir_ops.edge.dim_order_ops._empty_dim_order.default,
    exir_ops.edge.aten.clone.default: exir_ops.edge.dim_order_ops._clone_dim_order.default,
}
MemoryFormatOpsMap = {stated: plain for plain, stated in DimOrderOpsMap.items()}


class MemoryFormatOpsPass(ExportPass):
    """`_to_copy`, `clone` and `empty` with a memory format as the operators that state a dimension order."""

    def call_operator(
        self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], meta: NodeMetadata
    ) -> ProxyValue:
        """A call of an operator."""
        stated = DimOrderOpsMap.get(op)
        if stated is None:
            return super().call_operator(op, args, kwargs, meta)
        options = dict(kwargs)
        tensor = _tensor(args[0])
        rank = len(args[0]) if tensor is None else tensor.dim()
        order = get_dim_order(options.pop("memory_format", None), rank)
        if order is None:
            order = list(range(rank)) if tensor is None else [int(dim) for dim in tensor.dim_order()]
        return super().call_operator(stated, args, {**options, "dim_order": order}, meta)


class DimOrderOpsRevertPass(ExportPass):
    """The operators that state a dimension order as `_to_copy`, `clone` and `empty` with a memory format."""

    def call_operator(
        self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], meta: NodeMetadata
    ) -> ProxyValue:
        """A call of an operator."""
        plain = MemoryFormatOpsMap.get(op)
        if plain is None:
            return super().call_operator(op, args, kwargs, meta)
        options = dict(kwargs)
        tensor = _tensor(args[0])
        rank = len(args[0]) if tensor is None else tensor.dim()
        order = options.pop("dim_order", None)
        options["memory_format"] = memory_format_of(list(range(rank)) if order is None else order)
        return super().call_operator(plain, args, options, meta)


def _tensor(value: Any) -> torch.Tensor | None:
    data = value.data if isinstance(value, ProxyValue) else value
    return data if isinstance(data, torch.Tensor) else None
