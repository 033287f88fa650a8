"""Replace operators that take a memory format by operators that state a dimension order."""

from __future__ import annotations

import torch
from torch.export import ExportedProgram

from pteron.errors import ExportError
from pteron.exir.edge.delegate_call import graph_modules
from pteron.exir.edge.dim_order_ops import LIBRARY_NAMESPACE
from pteron.exir.edge.source_location import source_location

_DIM_ORDER = getattr(torch.ops, LIBRARY_NAMESPACE)
_REPLACEMENTS = {
    torch.ops.aten._to_copy.default: _DIM_ORDER._to_dim_order_copy.default,
    torch.ops.aten.clone.default: _DIM_ORDER._clone_dim_order.default,
    torch.ops.aten.empty.memory_format: _DIM_ORDER._empty_dim_order.default,
}


def state_dim_order(program: ExportedProgram) -> None:
    """Rewrite `_to_copy`, `clone` and `empty` of `program` with the dimension order of their result, in place.

    Raises `ExportError` where a result is neither contiguous nor any other permutation of dense dimensions.
    """
    for module in graph_modules(program.graph_module):
        for node in module.graph.nodes:
            replacement = _REPLACEMENTS.get(node.target) if node.op == "call_function" else None
            if replacement is None:
                continue
            keywords = {
                name: value
                for name, value in node.kwargs.items()
                if name not in ("memory_format", "layout", "device", "pin_memory")
            }
            keywords["dim_order"] = _dim_order(node)
            node.target = replacement
            node.kwargs = keywords


def _dim_order(node: torch.fx.Node) -> list[int]:
    value = node.meta["val"]
    try:
        return list(value.dim_order())
    except RuntimeError as error:
        raise ExportError(
            f"{node.target}: the result's strides {tuple(value.stride())} are no permutation of dense dimensions: "
            f"{node.format_node()} at {source_location(node)}",
            operator=str(node.target),
            source_line=str(source_location(node)),
            hint="call .contiguous() on the tensor in the model",
        ) from error
