"""Calls that reorder the dimensions of a tensor, whichever operator they spell it with."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pteron.exir.edge.edge_op_overload import edge_op_by_name

PERMUTE = edge_op_by_name("aten", "permute_copy", "default")
_TRANSPOSE = edge_op_by_name("aten", "transpose_copy", "int")
_MATRIX_TRANSPOSE = edge_op_by_name("aten", "t_copy", "default")


def permutation_of(node: torch.fx.Node) -> tuple[int, ...] | None:
    """The dimensions of the operand of `node` in the order of the result; None where `node` does not reorder
    dimensions.
    """
    if node.op != "call_function" or node.target not in (PERMUTE, _TRANSPOSE, _MATRIX_TRANSPOSE):
        return None
    if node.kwargs or not isinstance(node.args[0], torch.fx.Node):
        return None
    rank = node.args[0].meta["val"].dim()
    order = list(range(rank))
    if node.target is PERMUTE:
        dims = node.args[1]
        assert isinstance(dims, (list, tuple))
        return tuple(int(dim) % rank for dim in dims) if rank else ()  # type: ignore[arg-type]
    first, second = (0, 1) if node.target is _MATRIX_TRANSPOSE else (int(d) for d in node.args[1:3])  # type: ignore[arg-type]
    if rank >= 2:
        order[first], order[second] = order[second], order[first]
    return tuple(order)


def compose(first: Sequence[int], second: Sequence[int]) -> tuple[int, ...]:
    """The permutation that reorders as `first` does and then as `second` does."""
    return tuple(first[dim] for dim in second)
