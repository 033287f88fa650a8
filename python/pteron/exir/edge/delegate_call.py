"""Recognise calls of lowered modules and of control-flow operators in a graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch._ops import HigherOrderOperator

DELEGATE_CALL_NAME = "executorch_call_delegate"
CONTROL_FLOW_NAMES = frozenset({"cond", "map_impl", "scan", "while_loop", "associative_scan"})


def is_delegate_call(node: torch.fx.Node) -> bool:
    """Whether `node` calls a lowered module."""
    return (
        node.op == "call_function"
        and isinstance(node.target, HigherOrderOperator)
        and node.target.__name__ == DELEGATE_CALL_NAME
    )


def lowered_module_of(node: torch.fx.Node) -> Any:
    """The `LoweredBackendModule` that a delegate call runs. `node` must satisfy `is_delegate_call`."""
    attribute = node.args[0]
    if not isinstance(attribute, torch.fx.Node) or attribute.op != "get_attr":
        raise TypeError(
            f"delegate call {node.name}: first argument must be a get_attr node, got {attribute!r}"
        )
    return attribute_of(attribute)


def attribute_of(node: torch.fx.Node) -> Any:
    """What a `get_attr` node reads from the module that owns its graph."""
    found: Any = node.graph.owning_module
    for part in str(node.target).split("."):
        found = getattr(found, part)
    return found


def is_control_flow(node: torch.fx.Node) -> bool:
    """Whether `node` is a control-flow operator (`torch.cond`, `map`, `scan`, `while_loop`)."""
    return (
        node.op == "call_function"
        and isinstance(node.target, HigherOrderOperator)
        and node.target.__name__ in CONTROL_FLOW_NAMES
    )


def is_cond(node: torch.fx.Node) -> bool:
    """Whether `node` runs one of two branches (`torch.cond`)."""
    return is_control_flow(node) and getattr(node.target, "__name__", None) == "cond"


def cond_branches(
    node: torch.fx.Node,
) -> list[tuple[torch.fx.GraphModule, list[tuple[torch.fx.Node, Any]]]]:
    """(branch, its placeholders with the operands they stand for) of a `cond`: the true branch, then the
    false one.
    """
    _, *branches, operands = node.args
    found = []
    for branch in branches:
        assert isinstance(branch, torch.fx.Node)
        module: torch.fx.GraphModule = attribute_of(branch)
        placeholders = [each for each in module.graph.nodes if each.op == "placeholder"]
        found.append((module, list(zip(placeholders, operands, strict=True))))  # type: ignore[arg-type]
    return found


def branch_results(module: torch.fx.GraphModule) -> list[Any]:
    """What a branch returns, one item per result."""
    returned = module.graph.output_node().args[0]
    return list(returned) if isinstance(returned, (list, tuple)) else [returned]


def graph_modules(module: torch.fx.GraphModule) -> Iterator[torch.fx.GraphModule]:
    """`module`, then every branch and loop body below it, each once, callers before callees."""
    yield module
    seen: set[str] = set()
    for node in module.graph.nodes:
        if not is_control_flow(node):
            continue
        for argument in node.all_input_nodes:
            if argument.op == "get_attr" and argument.name not in seen:
                body = attribute_of(argument)
                if isinstance(body, torch.fx.GraphModule):
                    seen.add(argument.name)
                    yield from graph_modules(body)
