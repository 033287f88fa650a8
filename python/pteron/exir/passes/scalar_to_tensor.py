"""Turn Python numbers that stand where an operator's schema says Tensor into constant tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram

from pteron.exir.passes.exported_program_pass import each_graph_with
from pteron.exir.passes.lift_constant import lift_constant

# Their result is boolean, or their integer operands are computed in floating point.
_INTEGERS_BECOME_FLOATS = frozenset({torch.ops.aten.div.Tensor, torch.ops.aten.atan2.default})


def _operand_dtype(node: torch.fx.Node, scalar: bool | int | float) -> torch.dtype:
    """The dtype in which the operator would use `scalar` next to its tensor operands."""
    tensors = [
        argument.meta["val"]
        for argument in node.all_input_nodes
        if isinstance(argument.meta.get("val"), torch.Tensor)
    ]
    dtype = torch.result_type(tensors[0], scalar) if tensors else torch.tensor(scalar).dtype
    if node.target in _INTEGERS_BECOME_FLOATS and not dtype.is_floating_point and not dtype.is_complex:
        return torch.get_default_dtype()
    return dtype


def _constant(
    program: ExportedProgram, module: torch.fx.GraphModule, node: torch.fx.Node, value: bool | int | float
) -> torch.fx.Node:
    dtype = _operand_dtype(node, value)
    if module is program.graph_module:
        return lift_constant(program, torch.tensor(value, dtype=dtype), node)
    # The constants of a branch would have to travel through its operands, so it makes its own.
    with module.graph.inserting_before(node):
        full = module.graph.call_function(torch.ops.aten.full.default, ([], value), {"dtype": dtype})
    mode = node.meta["val"].fake_mode
    with mode:
        full.meta["val"] = torch.full([], value, dtype=dtype)
    for key in ("stack_trace", "nn_module_stack", "from_node"):
        if key in node.meta:
            full.meta[key] = node.meta[key]
    return full


@each_graph_with(lambda program: program)
def scalar_to_tensor(module: torch.fx.GraphModule, program: ExportedProgram) -> None:
    """Lift Python numbers in Tensor positions (`aten.add.Tensor(x, 2.0)`) into 0-d constants, in place.

    The constant gets the dtype in which the operator would have used the number, so no cast is left for run
    time.
    """
    for node in list(module.graph.nodes):
        if node.op != "call_function" or not isinstance(node.target, OpOverload):
            continue
        arguments = list(node.args)
        keywords = dict(node.kwargs)
        for position, schema in enumerate(node.target._schema.arguments):
            if not isinstance(schema.type, torch.TensorType):
                continue
            if position < len(arguments) and isinstance(arguments[position], (bool, int, float)):
                arguments[position] = _constant(program, module, node, _number(arguments[position]))
            elif isinstance(keywords.get(schema.name), (bool, int, float)):
                keywords[schema.name] = _constant(program, module, node, _number(keywords[schema.name]))
        node.args = tuple(arguments)
        node.kwargs = keywords


def _number(value: Any) -> bool | int | float:
    assert isinstance(value, (bool, int, float))
    return value
