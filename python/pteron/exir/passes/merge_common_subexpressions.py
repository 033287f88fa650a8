"""Compute once what a graph computes twice."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.export import ExportedProgram

from pteron.exir.edge.debug_handles import stand_for
from pteron.exir.edge.symbolic_ops import is_symbolic_op
from pteron.exir.passes.constant_values import constant_values, written_operands
from pteron.exir.passes.effects import is_pure_call
from pteron.exir.passes.exported_program_pass import each_graph_with

# A tensor made from nothing (a mask, zeros) is cheap to make again and would occupy memory in between.
_LARGEST_KEPT_ALIVE = 64 * 1024
# Elements. Numbers in the model's code become constants of one element each.
_SMALL_CONSTANT = 8


@each_graph_with(lambda program: program)
def merge_common_subexpressions(module: torch.fx.GraphModule, program: ExportedProgram) -> bool:
    """Let the first of several equal calls serve the readers of all, in place.

    Before: `a = sin(x); b = sin(x); c = a * b`. After: `a = sin(x); c = a * a`. Calls are equal where
    operator, operands and every other argument are, types included: `1`, `1.0` and `True` differ; constants
    of a few equal elements count as one. Not merged: calls that are not pure (random, writing, quantising,
    control flow, delegates), results that are returned (each output has memory of its own), and calls on two
    sides of a write to their operand.
    """
    merged = module is program.graph_module and _merge_small_constants(program)
    return _merge(module) or merged


def _merge_small_constants(program: ExportedProgram) -> bool:
    """Let readers of equal numbers that were written several times in the model read one constant."""
    known: dict[Any, torch.fx.Node] = {}
    changed = False
    for node, value in constant_values(program).items():
        # Parameters and buffers have names by which data files exchange them.
        if "lifted_tensor" not in node.name or value.numel() > _SMALL_CONSTANT:
            continue
        key = (value.dtype, tuple(value.shape), repr(value.tolist()))
        first = known.setdefault(key, node)
        if first is not node and not any(user.op == "output" for user in node.users):
            changed |= bool(node.users)
            node.replace_all_uses_with(first)
    return changed


def _merge(module: torch.fx.GraphModule) -> bool:
    known: dict[Any, torch.fx.Node] = {}
    writes: dict[torch.fx.Node, int] = {}
    changed = False
    for node in list(module.graph.nodes):
        for written in written_operands(node):
            writes[written] = writes.get(written, 0) + 1
        if not _is_mergeable(node):
            continue
        key = _key(node, writes)
        first = None if key is None else known.setdefault(key, node)
        if first is None or first is node or any(user.op == "output" for user in node.users):
            continue
        node.replace_all_uses_with(first)
        stand_for(first, node)
        module.graph.erase_node(node)
        changed = True
    if changed:
        module.recompile()
    return changed


def _is_mergeable(node: torch.fx.Node) -> bool:
    if node.op != "call_function":
        return False
    if node.target is operator.getitem or is_symbolic_op(node.target):
        return True
    if not is_pure_call(node):
        return False
    value = node.meta.get("val")
    return bool(node.all_input_nodes) or not (
        isinstance(value, torch.Tensor) and value.numel() * value.dtype.itemsize > _LARGEST_KEPT_ALIVE
    )


def _key(node: torch.fx.Node, writes: dict[torch.fx.Node, int]) -> Any:
    """What makes two calls equal; None where an argument cannot be compared."""

    def part(argument: Any) -> Any:
        if isinstance(argument, torch.fx.Node):
            return (argument, writes.get(argument, 0))
        if isinstance(argument, (list, tuple)):
            return tuple(part(each) for each in argument)
        # The text tells -0.0 from 0.0, and makes one NaN equal to another.
        return (type(argument), repr(argument))

    arguments = torch.utils._pytree.tree_leaves((node.args, node.kwargs))
    if any(
        isinstance(each, (torch.SymInt, torch.SymFloat, torch.SymBool, torch.Tensor)) for each in arguments
    ):
        return None
    named = tuple((name, part(value)) for name, value in sorted(node.kwargs.items()))
    return (node.target, tuple(part(value) for value in node.args), named)
