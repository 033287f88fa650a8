"""Lists of the graphs that control-flow operators run, in the form that partitioners and passes written for
ExecuTorch take them: (attribute name, graph module, call node).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch

from pteron.exir.edge.control_flow import graph_modules, is_control_flow

__all__ = [
    "bfs_trace_with_node_process",
    "contains_any_call_fn_target_op",
    "get_cond_while_submodules",
    "get_control_flow_submodules",
    "get_scan_submodules",
]

#: Positions of the bodies among the arguments of each operator.
_BODIES = {"cond": (1, 2), "map_impl": (0,), "scan": (0,), "associative_scan": (0,), "while_loop": (0, 1)}

_Body = tuple[str, torch.fx.GraphModule, torch.fx.Node]


def get_submodule(graph_module: torch.fx.GraphModule, node: torch.fx.Node, arg_index: int) -> Any:
    """(attribute name, module, `node`) of the module that an argument of `node` names.

    Raises:
        AssertionError: the argument is no `get_attr` node.
    """
    attribute = node.args[arg_index]
    if not isinstance(attribute, torch.fx.Node) or attribute.op != "get_attr":
        raise AssertionError(f"{node.format_node()}: argument {arg_index} names no module")
    return str(attribute.target), graph_module.get_submodule(str(attribute.target)), node


def _bodies(graph_module: torch.fx.GraphModule, kinds: Collection[str]) -> list[_Body]:
    return [
        get_submodule(graph_module, node, position)
        for node in graph_module.graph.nodes
        if is_control_flow(node) and node.target.__name__ in kinds
        for position in _BODIES[node.target.__name__]
    ]


def bodies_at(
    graph_module: torch.fx.GraphModule, op_to_submodule_arg_index: Mapping[Any, Sequence[int]]
) -> list[_Body]:
    """As `get_control_flow_submodules`, of the operators that are keys, at the positions that they map to."""
    return [
        get_submodule(graph_module, node, position)
        for node in graph_module.graph.nodes
        if node.op == "call_function" and is_control_flow(node)
        for position in op_to_submodule_arg_index.get(node.target, ())
    ]


def get_control_flow_submodules(graph_module: torch.fx.GraphModule) -> list[_Body]:
    """Bodies of the control-flow operators of one graph, those in bodies left out.

    All operators whose bodies are partitioned are meant: `cond`, `map_impl`, `scan`, and, beyond ExecuTorch,
    `while_loop` and `associative_scan`.
    """
    return _bodies(graph_module, _BODIES)


def get_cond_while_submodules(graph_module: torch.fx.GraphModule) -> list[_Body]:
    """As `get_control_flow_submodules`, of `cond` and `while_loop` only."""
    return _bodies(graph_module, ("cond", "while_loop"))


def get_scan_submodules(graph_module: torch.fx.GraphModule) -> list[_Body]:
    """As `get_control_flow_submodules`, of `scan` only."""
    return _bodies(graph_module, ("scan",))


def bfs_trace_with_node_process(gm: torch.fx.GraphModule, node_op: Callable[[torch.fx.Node], None]) -> None:
    """Calls `node_op` with every node of `gm` and of the bodies below it, callers before callees."""
    queue = [gm]
    while queue:
        module = queue.pop(0)
        for node in module.graph.nodes:
            node_op(node)
        queue += [body for _, body, _ in get_control_flow_submodules(module)]


def contains_any_call_fn_target_op(graph_module: torch.fx.GraphModule, ops: Collection[Any]) -> bool:
    """Whether an operator of `ops` is called in the graph or in a body below it. ATen operators in `ops`
    mean the edge operators of them too.
    """
    return bool(ops) and any(
        node.op == "call_function" and (node.target in ops or getattr(node.target, "_op", None) in ops)
        for module in graph_modules(graph_module)
        for node in module.graph.nodes
    )
