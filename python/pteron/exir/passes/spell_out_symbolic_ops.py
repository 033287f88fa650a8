"""Write arithmetic on symbolic numbers with the operators that programs have."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from pteron.exir.passes.exported_program_pass import each_graph

# Larger powers of an extent leave 64 bits.
_MOST_FACTORS = 8


@each_graph
def spell_out_symbolic_ops(module: torch.fx.GraphModule) -> None:
    """Replace operators on symbolic numbers for which programs have no instruction by some for which they
    have, in place: powers by products, `!=` by `not ==`, `and` and `or` by a choice, `floor` by `ceil`,
    `abs` by a maximum, `sym_sum` by additions, `round` to no digits by `round`.
    """
    for node in list(module.graph.nodes):
        rewrite = _REWRITES.get(node.target) if node.op == "call_function" else None
        if rewrite is None or not _is_number(node.meta.get("val")):
            continue
        with module.graph.inserting_before(node):
            spelled = rewrite(_Calls(module.graph, node), *node.args)
        if spelled is not None:
            node.replace_all_uses_with(spelled)
            module.graph.erase_node(node)
    module.recompile()


def _is_number(value: Any) -> bool:
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool))


class _Calls:
    """Adds nodes that stand for `node`, with values."""

    def __init__(self, graph: torch.fx.Graph, node: torch.fx.Node) -> None:
        self._graph = graph
        self._node = node

    def __call__(self, target: Callable[..., Any], *args: Any) -> torch.fx.Node:
        made = self._graph.call_function(target, args)
        for key in ("stack_trace", "nn_module_stack", "from_node"):
            if key in self._node.meta:
                made.meta[key] = self._node.meta[key]
        made.meta["val"] = target(*torch.fx.node.map_arg(args, lambda operand: operand.meta["val"]))
        return made


def _power(call: _Calls, base: Any, exponent: Any) -> torch.fx.Node | None:
    if type(exponent) is not int or not 2 <= exponent <= _MOST_FACTORS:
        return None
    product: torch.fx.Node = base
    for _ in range(exponent - 1):
        product = call(operator.mul, product, base)
    return product


def _not_equal(call: _Calls, left: Any, right: Any) -> torch.fx.Node:
    return call(torch.sym_not, call(operator.eq, left, right))


def _and(call: _Calls, left: Any, right: Any) -> torch.fx.Node | None:
    return call(torch.sym_ite, left, right, False) if _are_bools(left, right) else None


def _or(call: _Calls, left: Any, right: Any) -> torch.fx.Node | None:
    return call(torch.sym_ite, left, True, right) if _are_bools(left, right) else None


def _are_bools(*operands: Any) -> bool:
    values = [each.meta["val"] if isinstance(each, torch.fx.Node) else each for each in operands]
    return all(isinstance(value, (bool, torch.SymBool)) for value in values)


def _floor(call: _Calls, number: Any) -> torch.fx.Node:
    return call(operator.neg, call(math.ceil, call(operator.neg, number)))


def _absolute(call: _Calls, number: Any) -> torch.fx.Node:
    return call(torch.sym_max, number, call(operator.neg, number))


def _round(call: _Calls, number: Any, digits: Any = None) -> torch.fx.Node | None:
    return call(builtins.round, number) if digits is None else None


def _sum(call: _Calls, numbers: Any) -> torch.fx.Node | None:
    terms = tree_leaves(numbers)
    if not terms:
        return None
    total = terms[0]
    for term in terms[1:]:
        total = call(operator.add, total, term)
    return total if isinstance(total, torch.fx.Node) else None


_REWRITES: dict[Any, Callable[..., torch.fx.Node | None]] = {
    operator.pow: _power,
    operator.ne: _not_equal,
    operator.and_: _and,
    operator.or_: _or,
    math.floor: _floor,
    operator.abs: _absolute,
    builtins.round: _round,
    torch.sym_sum: _sum,
}
