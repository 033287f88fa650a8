"""Leave empty tensors out of concatenations."""

from __future__ import annotations

import torch

from pteron.exir.edge.edge_op_overload import edge_op_by_name
from pteron.exir.passes.effects import may_share_memory, written_nodes
from pteron.exir.passes.exported_program_pass import each_graph_with
from pteron.exir.passes.remove_noops import is_same_layout

_CAT = edge_op_by_name("aten", "cat", "default")


@each_graph_with(written_nodes)
def prune_empty_tensors(module: torch.fx.GraphModule, written: set[torch.fx.Node]) -> bool:
    """Drop operands of `cat` that never have an element, and a `cat` of one tensor altogether, in place.

    Before: `cat([x, empty, y])`. After: `cat([x, y])`. Many kernels refuse an empty operand of another rank,
    which PyTorch allows. An operand whose dtype decides the result's stays.
    """
    changed = False
    for node in list(module.graph.nodes):
        if node.op == "call_function" and node.target is _CAT:
            changed |= _prune(node, written)
    module.recompile()
    return changed


def _prune(node: torch.fx.Node, written: set[torch.fx.Node]) -> bool:
    operands = list(node.args[0])  # type: ignore[arg-type]
    kept = [operand for operand in operands if not _is_empty(operand)]
    if not kept:
        return False
    changed = False
    if len(kept) < len(operands) and _result_dtype(kept) == node.meta["val"].dtype:
        node.args = (kept, *node.args[1:])
        operands, changed = kept, True
    (first, *rest) = operands
    is_same = not rest and is_same_layout(first.meta["val"], node.meta["val"])
    if is_same and may_share_memory(node, first, written):
        node.replace_all_uses_with(first)
        node.graph.erase_node(node)
        changed = True
    return changed


def _is_empty(operand: torch.fx.Node) -> bool:
    return any(isinstance(extent, int) and extent == 0 for extent in operand.meta["val"].shape)


def _result_dtype(operands: list[torch.fx.Node]) -> torch.dtype:
    dtype: torch.dtype = operands[0].meta["val"].dtype
    for operand in operands[1:]:
        dtype = torch.promote_types(dtype, operand.meta["val"].dtype)
    return dtype
