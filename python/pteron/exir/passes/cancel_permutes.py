"""Make one permute of several, and none of those that undo each other."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from pteron.exir.edge.debug_handles import stand_for
from pteron.exir.edge.edge_op_overload import edge_op_by_name
from pteron.exir.edge.tensor_spec import dim_order_of_value
from pteron.exir.passes.effects import may_share_memory, written_nodes
from pteron.exir.passes.exported_program_pass import each_graph_with

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


_VIEW = edge_op_by_name("aten", "view_copy", "default")


@each_graph_with(written_nodes)
def cancel_permutes(module: torch.fx.GraphModule, written: set[torch.fx.Node]) -> bool:
    """Compose permutes of permutes; drop those that change nothing, in place.

    Before: `y = permute_copy(permute_copy(x, [2, 0, 1]), [1, 2, 0])`. After: `x`. `transpose_copy` and
    `t_copy` count as permutes. A permute that moves dimensions of extent 1 alone becomes `view_copy`, which
    costs nothing.
    """
    changed = False
    for node in list(module.graph.nodes):
        order = permutation_of(node)
        if order is None:
            continue
        source = node.args[0]
        assert isinstance(source, torch.fx.Node)
        inner = permutation_of(source)
        # Earlier nodes are done: what this one reads is no permute of a permute itself.
        if inner is not None and source not in written:
            changed = True
            order = compose(inner, order)
            stand_for(node, source)
            previous, source = source, source.args[0]
            assert isinstance(source, torch.fx.Node)
            node.target = PERMUTE
            node.args = (source, list(order))
            if not previous.users:
                module.graph.erase_node(previous)
        if order == tuple(range(len(order))) and may_share_memory(node, source, written):
            if dim_order_of_value(source.meta["val"]) == dim_order_of_value(node.meta["val"]):
                node.replace_all_uses_with(source)
                module.graph.erase_node(node)
                changed = True
        elif order != tuple(range(len(order))):
            changed |= _as_reshape(node, source, order)
    if changed:
        module.recompile()
    return changed


def _as_reshape(node: torch.fx.Node, source: torch.fx.Node, order: tuple[int, ...]) -> bool:
    """Turn a permute that keeps the order of all dimensions longer than 1 into a reshape."""
    value, result = source.meta["val"], node.meta["val"]
    moved = [dim for dim in order if not (isinstance(value.shape[dim], int) and value.shape[dim] == 1)]
    if moved != sorted(moved) or math.prod(s for s in value.shape if isinstance(s, int)) == 0:
        return False
    if any(dim_order_of_value(each) != tuple(range(each.dim())) for each in (value, result)):
        return False
    size = [extent if isinstance(extent, int) else -1 for extent in result.shape]
    if size.count(-1) > 1:
        return False
    node.target = _VIEW
    node.args = (source, size)
    return True
