"""Let the values that a loop carries be computed in the place where they are kept."""

from __future__ import annotations

from typing import Any

import torch

from pteron.exir.edge.control_flow import Body, ControlFlow, Meaning, Parameter
from pteron.exir.edge.edge_op_overload import EdgeOpOverload
from pteron.exir.edge.memory_nodes import view
from pteron.exir.edge.tensor_spec import TensorSpec


def share_carried_memory(call: ControlFlow) -> None:
    """Point the specs of results and initial values at the carried value's, where no copy is needed then.

    A result may be written to its carried value's place when every read of the old value comes before; an
    initial value may be computed there when only this loop reads it. Specs must be set.
    """
    body = call.iteration
    results = body.results
    for parameter in body.having(Meaning.CARRIED):
        kept = parameter.placeholder.meta["spec"]
        if not isinstance(kept, TensorSpec):
            continue
        result = results[parameter.position]
        if _is_own_tensor(result, kept) and _is_read_only_before(body, parameter, result):
            result.meta["spec"].base = kept
        if call.kind != "associative_scan":
            initial = parameter.operand
            if _is_own_tensor(initial, kept) and _times_read(call, initial) == 1:
                initial.meta["spec"].base = kept


def _is_own_tensor(value: Any, kept: TensorSpec) -> bool:
    """Whether `value` is made by an operator, in memory of its own that is like that of `kept`."""
    if not isinstance(value, torch.fx.Node) or not isinstance(value.target, EdgeOpOverload):
        return False
    spec = value.meta.get("spec")
    return isinstance(spec, TensorSpec) and spec.base is None and spec.is_like(kept)


def _is_read_only_before(body: Body, parameter: Parameter, result: torch.fx.Node) -> bool:
    order = {node: position for position, node in enumerate(body.module.graph.nodes)}
    views = [parameter.placeholder]
    for value in views:
        for user in value.users:
            if order[user] >= order[result]:
                return False
            if user.target is view:
                views.append(user)
    return True


def _times_read(call: ControlFlow, value: torch.fx.Node) -> int:
    """Readers of `value`, counting each operand of the call."""
    operands = (*call.initial, *call.mapped, *call.captured)
    return len(value.users) - 1 + sum(operand is value for operand in operands)
