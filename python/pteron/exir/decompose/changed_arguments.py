"""Custom operators that change their arguments: called by their functional forms, or said in PyTorch's."""

from __future__ import annotations

from typing import Any

import torch
from torch._higher_order_ops.auto_functionalize import auto_functionalized_v2
from torch._ops import OpOverload
from torch.export import ExportedProgram

from pteron.exir.decompose.cache_updates import cache_updates
from pteron.exir.edge.control_flow import graph_modules
from pteron.exir.edge.custom_ops import changed_arguments, functional_form, is_custom

# What PyTorch writes beside the tensor that an argument is a part of.
_VIEWED = ("size", "slice_dim", "length")


def call_functional_forms(program: ExportedProgram) -> None:
    """Replaces PyTorch's calls of operators that change whole tensors. Others, which change a part of a
    tensor or one tensor by two arguments, stay, and are reported with all problems.
    """
    for module in graph_modules(program.graph_module):
        for node in module.graph.find_nodes(op="call_function", target=auto_functionalized_v2):
            _replace(node)
        module.recompile()


def _replace(node: torch.fx.Node) -> None:
    op: Any = node.args[0]
    spelled = cache_updates(op) if isinstance(op, OpOverload) else None
    is_other = spelled is None and isinstance(op, OpOverload) and is_custom(op)
    form = functional_form(op) if is_other else None
    kwargs: dict[str, Any] = dict(node.kwargs)
    bases = kwargs.pop("_all_bases")
    names = [argument.name for argument in changed_arguments(op)]
    places: list[Any] = [kwargs.get(f"_{name}_base_index") for name in names]
    is_part = any(f"_{name}_{suffix}" in kwargs for name in names for suffix in _VIEWED)
    if is_part or sorted(map(str, places)) != sorted(map(str, range(len(bases)))):
        return
    given = kwargs | {name: bases[place] for name, place in zip(names, places, strict=True)}
    if spelled is not None:
        _spell_out(node, spelled, given, places)
        return
    if form is None:
        return
    arguments = op._schema.arguments
    args = [given[argument.name] for argument in arguments if not argument.kwarg_only]
    keywords = {argument.name: given[argument.name] for argument in arguments if argument.kwarg_only}
    returned = len(op._schema.returns)
    # PyTorch's call gives None where the operator returns nothing, and new values in the order of the bases.
    order = [*range(returned), *(max(returned, 1) + place for place in places)]
    with node.graph.inserting_before(node):
        call = node.graph.call_function(form, tuple(args), keywords)
    values = [node.meta["val"][at] for at in order]
    call.meta = node.meta | {"val": values[0] if len(order) == 1 else tuple(values)}
    for user in list(node.users):
        taken: Any = user.args[1]
        at = order.index(taken)
        if len(order) == 1:
            user.replace_all_uses_with(call)
            node.graph.erase_node(user)
        else:
            user.args = (call, at)
    node.graph.erase_node(node)


def _spell_out(node: torch.fx.Node, spelled: Any, given: dict[str, Any], places: list[int]) -> None:
    """Puts what `spelled` writes in the place of a call: one result, then the new values of caches."""
    graph = node.graph
    before = set(graph.nodes)
    with graph.inserting_before(node):
        result, caches = spelled(graph, given)
        results = {1 + place: cache for place, cache in zip(places, caches, strict=True)}
        if result is None:
            # It stands for the cache in the graph; its contents are nobody's.
            fake = node.meta["val"][0]
            result = graph.call_function(torch.ops.aten.full.default, ([1], 0), {"dtype": fake.dtype})
            result.meta["val"] = fake
        results[0] = result
    for made in graph.nodes:
        if made not in before:
            made.meta = {**node.meta, "val": made.meta["val"]}
    for user in list(node.users):
        taken: Any = user.args[1]
        user.replace_all_uses_with(results[taken])
        graph.erase_node(user)
    graph.erase_node(node)
    if not result.users:
        graph.erase_node(result)
