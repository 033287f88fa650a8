"""Turn symbolic numbers that stand where an operator's schema says Tensor into 0-d tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload

from pteron.exir.edge.symbolic_ops import is_symbolic_number
from pteron.exir.passes.exported_program_pass import each_graph


def _is_symbolic_number(argument: Any) -> bool:
    return isinstance(argument, torch.fx.Node) and is_symbolic_number(argument.meta.get("val"))


@each_graph
def sym_to_tensor(module: torch.fx.GraphModule) -> None:
    """Insert `scalar_tensor` where a symbolic number feeds a Tensor argument (`x + x.shape[0]`), in place."""
    for node in list(module.graph.nodes):
        if node.op != "call_function" or not isinstance(node.target, OpOverload):
            continue
        arguments = list(node.args)
        for position, schema in enumerate(node.target._schema.arguments[: len(arguments)]):
            if isinstance(schema.type, torch.TensorType) and _is_symbolic_number(arguments[position]):
                arguments[position] = _scalar_tensor(module, node, arguments[position])
        node.args = tuple(arguments)


def _scalar_tensor(module: torch.fx.GraphModule, node: torch.fx.Node, number: torch.fx.Node) -> torch.fx.Node:
    result = node.meta["val"]
    value = number.meta["val"]
    # The number takes part in the operator's type promotion, so it gets the dtype that promotion gives it.
    operands = [
        other.meta["val"] for other in node.all_input_nodes if isinstance(other.meta.get("val"), torch.Tensor)
    ]
    sample: bool | int | float
    if isinstance(value, (bool, torch.SymBool)):
        sample = False
    elif isinstance(value, (float, torch.SymFloat)):
        sample = 0.0
    else:
        sample = 0
    dtype = torch.result_type(operands[0], sample) if operands else torch.tensor(sample).dtype
    with module.graph.inserting_before(node):
        made = module.graph.call_function(torch.ops.aten.scalar_tensor.default, (number,), {"dtype": dtype})
    mode = torch.utils._pytree.tree_leaves(result)[0].fake_mode
    with mode:
        made.meta["val"] = torch.empty([], dtype=dtype)
    for key in ("stack_trace", "nn_module_stack", "from_node"):
        if key in node.meta:
            made.meta[key] = node.meta[key]
    return made
