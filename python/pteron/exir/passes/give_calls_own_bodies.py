"""Let no two control-flow calls share a body."""

from __future__ import annotations

from functools import partial

import torch
from torch.export import ExportedProgram

from pteron.exir.edge.control_flow import attribute_of, is_control_flow
from pteron.exir.passes.exported_program_pass import each_graph_with
from pteron.exir.passes.run_graph_passes import copy_graph_module


def _no_bodies(program: ExportedProgram) -> set[int]:
    """What `give_calls_own_bodies` starts with: identities of bodies that a call has."""
    return set()


@each_graph_with(_no_bodies)
def give_calls_own_bodies(module: torch.fx.GraphModule, taken: set[int]) -> None:
    """Copy a body for each further call that runs it, in place.

    Places in memory are stated on the nodes of a body, and each call has its own.
    """
    for node in list(module.graph.nodes):
        if is_control_flow(node):
            node.args = torch.fx.node.map_arg(node.args, partial(_own, module, taken))
    module.recompile()


def _own(module: torch.fx.GraphModule, taken: set[int], argument: torch.fx.Node) -> torch.fx.Node:
    if argument.op != "get_attr":
        return argument
    body = attribute_of(argument)
    if not isinstance(body, torch.fx.GraphModule):
        return argument
    if id(body) not in taken:
        taken.add(id(body))
        return argument
    number = 1
    while hasattr(module, f"{argument.name}_copy_{number}"):
        number += 1
    name = f"{argument.name}_copy_{number}"
    copied = copy_graph_module(body)
    taken.add(id(copied))
    setattr(module, name, copied)
    with module.graph.inserting_after(argument):
        own = module.graph.get_attr(name)
    own.meta = dict(argument.meta)
    return own
