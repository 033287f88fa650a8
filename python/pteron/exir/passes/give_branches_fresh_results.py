"""Let each result of a branch be a tensor that the branch made."""

from __future__ import annotations

import operator

import torch

from pteron.exir.edge.control_flow import (
    BodyKind,
    body_results,
    control_flow_of,
    control_flows,
    is_control_flow,
)
from pteron.exir.edge.memory_nodes import view
from pteron.exir.passes.clone_node import clone_node
from pteron.exir.passes.exported_program_pass import each_graph


@each_graph
def give_branches_fresh_results(module: torch.fx.GraphModule) -> None:
    """Clone results of `cond` branches that are operands, views or returned twice, in place.

    Both branches write a result to one place, the result's of the `cond`; memory that belongs to another
    value cannot be that place.
    """
    for call in control_flows(module):
        for body in call.bodies:
            if body.kind is BodyKind.BRANCH:
                _clone_results(body.module)


def _clone_results(branch: torch.fx.GraphModule) -> None:
    output = branch.graph.output_node()
    results = body_results(branch)
    seen: set[torch.fx.Node] = set()
    for position, result in enumerate(results):
        if not isinstance(result, torch.fx.Node) or not isinstance(result.meta.get("val"), torch.Tensor):
            continue
        if result in seen or not _is_made_here(result):
            with branch.graph.inserting_before(output):
                results[position] = clone_node(branch.graph, result)
        seen.add(result)
    output.args = (tuple(results),)
    branch.recompile()


def _is_made_here(result: torch.fx.Node) -> bool:
    if result.target is operator.getitem:
        # What a loop stacks has a place that grows row by row.
        source = result.args[0]
        return isinstance(source, torch.fx.Node) and not (
            is_control_flow(source) and control_flow_of(source).is_loop
        )
    return result.op == "call_function" and result.target is not view
