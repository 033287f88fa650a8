"""Make constants of control-flow bodies operands that the bodies capture."""

from __future__ import annotations

import torch
from torch.export import ExportedProgram

from pteron.exir.edge.control_flow import ControlFlow, attribute_of, control_flows, graph_modules
from pteron.exir.passes.lift_constant import fake_like, lift_constant


def lift_body_constants(program: ExportedProgram) -> None:
    """Let bodies capture tensors that they hold themselves (`torch.tensor([1.0, 2.0])` in a branch), in
    place.

    Export leaves such tensors as attributes of the body, which PyTorch's own decompositions cannot trace.
    """
    if not any(_tensors(module) for module in list(graph_modules(program.graph_module))[1:]):
        return
    top = program.graph_module
    for call in list(control_flows(top)):
        constants = _take_from_bodies(call)
        nodes = [lift_constant(program, value, call.node) for value in constants]
        _capture(call, nodes)
    for module in graph_modules(top):
        module.graph.lint()
        module.recompile()


def _tensors(module: torch.fx.GraphModule) -> list[torch.fx.Node]:
    return [
        node
        for node in module.graph.nodes
        if node.op == "get_attr" and isinstance(attribute_of(node), torch.Tensor)
    ]


def _take_from_bodies(call: ControlFlow) -> list[torch.Tensor]:
    """Let the tensors of all bodies of `call` be placeholders of each; returns them in their order."""
    found: list[tuple[torch.fx.GraphModule, torch.fx.Node, torch.Tensor]] = []
    for body in call.bodies:
        for inner in list(control_flows(body.module)):
            _capture(inner, _as_attributes(body.module, inner, _take_from_bodies(inner)))
        found.extend((body.module, node, attribute_of(node)) for node in _tensors(body.module))
    for body in call.bodies:
        graph = body.module.graph
        rest = next(node for node in graph.nodes if node.op != "placeholder")
        for owner, node, value in found:
            with graph.inserting_before(rest):
                placeholder = graph.placeholder(f"captured_constant{len(graph.nodes)}")
            placeholder.meta["val"] = fake_like(value, call.node)
            if owner is body.module:
                node.replace_all_uses_with(placeholder)
        for owner, node, _ in found:
            if owner is body.module:
                graph.erase_node(node)
                _forget(body.module, str(node.target))
    return [value for _, _, value in found]


def _forget(module: torch.fx.GraphModule, name: str) -> None:
    # Two nodes may have read one attribute.
    if all(node.op != "get_attr" or node.target != name for node in module.graph.nodes):
        delattr(module, name)


def _as_attributes(
    module: torch.fx.GraphModule, call: ControlFlow, values: list[torch.Tensor]
) -> list[torch.fx.Node]:
    """Nodes before `call` in the graph of `module` that read `values`."""
    nodes = []
    for value in values:
        number = 0
        while hasattr(module, f"_captured_constant{number}"):
            number += 1
        name = f"_captured_constant{number}"
        module.register_buffer(name, value)
        with module.graph.inserting_before(call.node):
            nodes.append(module.graph.get_attr(name))
    return nodes


def _capture(call: ControlFlow, nodes: list[torch.fx.Node]) -> None:
    *others, captured = call.node.args
    assert isinstance(captured, (list, tuple))
    call.node.args = (*others, type(captured)((*captured, *nodes)))
