"""One control-flow call as instructions: branches and `while_loop` here, counted loops in their own file."""

from __future__ import annotations

from typing import Any

import torch

from pteron.exir.edge.control_flow import ControlFlow, control_flow_of
from pteron.exir.edge.tensor_spec import TensorSpec
from pteron.exir.emit.control_flow.body_host import BodyHost, bind_captured
from pteron.exir.emit.control_flow.carried_values import CarriedValues
from pteron.exir.emit.control_flow.counted_loop import emit_counted_loop
from pteron.exir.schema import Bool


def emit_branches(host: BodyHost, call: ControlFlow) -> None:
    """Jump over the true branch if the predicate is false; after the true branch jump over the false one."""
    code, node = host.code, call.node
    results = [host.table.add_result(spec) for spec in node.meta["spec"]]
    to_else = code.jump_false(host.value_of(call.predicate), node)
    for body in call.bodies:
        bind_captured(host, body)
        host.emit_calls(body.module.graph)
        for value, result, spec in zip(body.results, results, node.meta["spec"], strict=True):
            source = host.value_of(value)
            if source != result and not _is_same_place(value, spec):
                code.move(source, result, node)
        if body is call.bodies[0]:
            to_end = code.jump_false(host.table.add(Bool(False)), node)
            code.land(to_else)
    code.land(to_end)
    host.table.bind(node, results)


def _is_same_place(value: Any, result: Any) -> bool:
    """Whether `value` is in the planned memory of `result` and no move has to tell its shape."""
    if not isinstance(value, torch.fx.Node) or not isinstance(result, TensorSpec):
        return False
    made = value.meta["spec"]
    return (
        isinstance(made, TensorSpec)
        and made.root is result.root
        and made.root.memory_id is not None
        and not made.is_dynamic
        and made.is_like(result)
    )


def emit_while_loop(host: BodyHost, call: ControlFlow) -> None:
    """The condition comes first, so a loop may run no iteration at all."""
    code, node = host.code, call.node
    condition, iteration = call.bodies
    carried = CarriedValues(host, call)
    for body in (condition, iteration):
        bind_captured(host, body)
        carried.bind(body)
    carried.start()
    top = code.here
    host.emit_calls(condition.module.graph)
    [goes_on] = condition.results
    to_end = code.jump_false(host.value_of(goes_on), node)
    host.emit_calls(iteration.module.graph)
    carried.advance()
    code.jump_false(host.table.add(Bool(False)), node, top)
    code.land(to_end)
    host.table.bind(node, list(carried.slots))


def emit_control_flow(host: BodyHost, node: torch.fx.Node) -> None:
    """Append the instructions of `node` and bind it to its results. Raises `ExportError`."""
    call = control_flow_of(node)
    if call.kind == "cond":
        emit_branches(host, call)
    elif call.kind == "while_loop":
        emit_while_loop(host, call)
    else:
        emit_counted_loop(host, call)
