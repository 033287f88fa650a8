"""`while_loop`: the condition, a jump out, the iteration, a jump back."""

from __future__ import annotations

from pteron.exir.edge.control_flow import ControlFlow
from pteron.exir.emit.control_flow.body_host import BodyHost
from pteron.exir.emit.control_flow.carried_values import CarriedValues
from pteron.exir.emit.control_flow.parameters import bind_captured
from pteron.exir.schema import Bool


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
