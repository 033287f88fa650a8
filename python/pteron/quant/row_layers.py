"""Linear layers whose inputs are quantised row by row, in a graph that PT2E converted."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import GraphModule, Node

#: As `PteronQuantizer` has it for weights.
_LEAST_SCALE = 2.0**-12
_WEIGHTS = (-127, 127)
_ROWS = (-128, 127)
#: What tells where a node comes from.
_ORIGIN = ("nn_module_stack", "stack_trace", "source_fn_stack", "from_node")


def quantize_rows(module: GraphModule, linear: Node) -> None:
    """Make the input of a float `aten.linear` int8 with a scale and a zero point for each row, chosen from
    its values in the call (`quantized_decomposed`, per token), and its weight int8 by output channel; in
    place. The caller recompiles.
    """
    ops: Any = torch.ops.quantized_decomposed
    x, weight = linear.args[0], linear.args[1]
    assert isinstance(x, Node)  # of a linear layer
    assert isinstance(weight, Node)
    graph, made = module.graph, list[Node]()

    def call(target: Any, *args: Any) -> Node:
        made.append(graph.call_function(target, args))
        return made[-1]

    with graph.inserting_before(linear):
        for name, value in _stored(module, weight).items():
            module.register_buffer(f"{linear.name}_{name}", value)
            made.append(graph.get_attr(f"{linear.name}_{name}"))
        floats = call(ops.dequantize_per_channel.default, *made, 0, *_WEIGHTS, torch.int8)
        chosen = call(ops.choose_qparams_per_token_asymmetric.default, x, torch.int8)
        parameters = [call(operator.getitem, chosen, i) for i in range(2)]
        rows = call(ops.quantize_per_token.default, x, *parameters, *_ROWS, torch.int8)
        back = call(ops.dequantize_per_token.default, rows, *parameters, *_ROWS, torch.int8, torch.float32)
    for node in made:
        node.meta.update({key: linear.meta[key] for key in _ORIGIN if key in linear.meta})
    linear.args = (back, floats, *linear.args[2:])
    if not weight.users:
        graph.erase_node(weight)
        _forget(module, str(weight.target))


def _forget(module: GraphModule, target: str) -> None:
    """Lets go of the float weight, unless another node reads it."""
    if not any(node.op == "get_attr" and node.target == target for node in module.graph.nodes):
        owner, _, name = target.rpartition(".")
        delattr(module.get_submodule(owner), name)


def _stored(module: GraphModule, weight: Node) -> dict[str, torch.Tensor]:
    """The float weight that a node reads as int8, symmetric by row, with scales and zero points."""
    owner, _, name = str(weight.target).rpartition(".")
    values: torch.Tensor = getattr(module.get_submodule(owner), name).detach()
    scales = (values.abs().amax(1) / _WEIGHTS[1]).clamp(min=_LEAST_SCALE)
    integers = (values / scales[:, None]).round().clamp(*_WEIGHTS).to(torch.int8)
    zeros = torch.zeros(len(scales), dtype=torch.int64)
    return {"integers": integers, "scales": scales, "zeros": zeros}
