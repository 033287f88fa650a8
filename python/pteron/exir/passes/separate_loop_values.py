"""Let the values of a loop be such that plain copies carry them from one iteration to the next."""

from __future__ import annotations

from typing import Any

import torch

from pteron.exir.edge.control_flow import Body, ControlFlow, Meaning, control_flows
from pteron.exir.edge.memory_nodes import view
from pteron.exir.edge.tensor_spec import dim_order_of_value
from pteron.exir.passes.clone_node import clone_node
from pteron.exir.passes.exported_program_pass import each_graph


@each_graph
def separate_loop_values(module: torch.fx.GraphModule) -> None:
    """Insert the copies that loops of `program` need, in place.

    At the end of an iteration the results are copied to the carried values, one after the other; a result
    that *is* another carried value (two that swap) would be read after it was overwritten, so it is cloned
    before. Rows are contiguous, on the way in and on the way out.
    """
    for call in control_flows(module):
        if call.is_loop:
            _clone_carried(call)
            _make_rows_contiguous(call, module)


def _clone_carried(call: ControlFlow) -> None:
    body = call.iteration
    carried = body.having(Meaning.CARRIED)
    old = {parameter.placeholder for parameter in carried}
    results = body.results
    for parameter in carried:
        result = results[parameter.position]
        if (
            isinstance(result, torch.fx.Node)
            and result is not parameter.placeholder
            and isinstance(result.meta.get("val"), torch.Tensor)
            and viewed_value(result) in old
        ):
            results[parameter.position] = _clone_before_output(body, result, is_contiguous=False)
    _set_results(body, results)


def viewed_value(value: torch.fx.Node) -> torch.fx.Node:
    """The value whose memory `value` shows: itself, or what it is a view of."""
    while value.target is view:
        base = value.args[0]
        assert isinstance(base, torch.fx.Node)
        value = base
    return value


def _make_rows_contiguous(call: ControlFlow, caller: torch.fx.GraphModule) -> None:
    for operand in call.mapped:
        if isinstance(operand, torch.fx.Node) and not _is_row_major(operand):
            with caller.graph.inserting_before(call.node):
                copy = _contiguous_clone(caller.graph, operand)
            call.node.replace_input_with(operand, copy)
    body = call.iteration
    results = body.results
    for position in range(call.stacked_from, len(results)):
        result = results[position]
        if call.kind != "while_loop" and isinstance(result, torch.fx.Node) and not _is_row_major(result):
            results[position] = _clone_before_output(body, result, is_contiguous=True)
    _set_results(body, results)


def _is_row_major(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    return not isinstance(value, torch.Tensor) or dim_order_of_value(value) == tuple(range(value.dim()))


def _clone_before_output(body: Body, value: torch.fx.Node, *, is_contiguous: bool) -> torch.fx.Node:
    graph = body.module.graph
    with graph.inserting_before(graph.output_node()):
        return _contiguous_clone(graph, value) if is_contiguous else clone_node(graph, value)


def _contiguous_clone(graph: torch.fx.Graph, value: torch.fx.Node) -> torch.fx.Node:
    clone = clone_node(graph, value)
    clone.kwargs = {"dim_order": list(range(value.meta["val"].dim()))}
    clone.meta["val"] = value.meta["val"].contiguous()
    return clone


def _set_results(body: Body, results: list[Any]) -> None:
    output = body.module.graph.output_node()
    if results != body.results:
        output.args = (tuple(results),)
        body.module.recompile()
