"""Give the operands of an elementwise operator one dtype."""

from __future__ import annotations

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KIND
from torch._prims_common import elementwise_dtypes

from pteron.exir.passes.exported_program_pass import each_graph

_PROMOTION = {
    torch.ops.aten.add.Tensor: KIND.DEFAULT,
    torch.ops.aten.sub.Tensor: KIND.DEFAULT,
    torch.ops.aten.mul.Tensor: KIND.DEFAULT,
    torch.ops.aten.div.Tensor: KIND.INT_TO_FLOAT,
    torch.ops.aten.div.Tensor_mode: KIND.DEFAULT,
    torch.ops.aten.remainder.Tensor: KIND.DEFAULT,
    torch.ops.aten.fmod.Tensor: KIND.DEFAULT,
    torch.ops.aten.pow.Tensor_Tensor: KIND.BOOL_TO_LONG,
    torch.ops.aten.atan2.default: KIND.INT_TO_FLOAT,
    torch.ops.aten.minimum.default: KIND.DEFAULT,
    torch.ops.aten.maximum.default: KIND.DEFAULT,
    torch.ops.aten.bitwise_and.Tensor: KIND.DEFAULT,
    torch.ops.aten.bitwise_or.Tensor: KIND.DEFAULT,
    torch.ops.aten.bitwise_xor.Tensor: KIND.DEFAULT,
    torch.ops.aten.eq.Tensor: KIND.DEFAULT,
    torch.ops.aten.ne.Tensor: KIND.DEFAULT,
    torch.ops.aten.lt.Tensor: KIND.DEFAULT,
    torch.ops.aten.le.Tensor: KIND.DEFAULT,
    torch.ops.aten.gt.Tensor: KIND.DEFAULT,
    torch.ops.aten.ge.Tensor: KIND.DEFAULT,
    torch.ops.aten.where.self: KIND.DEFAULT,
}


@each_graph
def promote_mixed_dtypes(module: torch.fx.GraphModule) -> None:
    """Insert `_to_copy` before elementwise operators whose operands differ in dtype, in place.

    Afterwards a kernel of these operators meets one dtype. Division of integers is computed in floating
    point, so its operands are cast even where they agree.
    """
    for node in list(module.graph.nodes):
        kind = _PROMOTION.get(node.target) if node.op == "call_function" else None
        if kind is None:
            continue
        if node.target is torch.ops.aten.div.Tensor_mode and node.kwargs.get("rounding_mode") is None:
            kind = KIND.INT_TO_FLOAT
        first = 1 if node.target is torch.ops.aten.where.self else 0
        operands = [argument for argument in node.args[first:] if _is_tensor(argument)]
        values = [operand.meta["val"] for operand in operands]
        if not values:
            continue
        compute, _ = elementwise_dtypes(*values, type_promotion_kind=kind)
        # The computation dtype of half is float; operands keep the dtype that PyTorch would promote
        # them to.
        promoted = _promoted(values, kind, compute)
        node.args = tuple(
            _cast(module, node, argument, promoted)
            if position >= first and _is_tensor(argument) and argument.meta["val"].dtype != promoted
            else argument
            for position, argument in enumerate(node.args)
        )


def _promoted(values: list[torch.Tensor], kind: KIND, compute: torch.dtype) -> torch.dtype:
    dtype = values[0].dtype
    if len(values) > 1:
        dtype = torch.result_type(values[0], values[1])
    if kind is KIND.INT_TO_FLOAT and not (dtype.is_floating_point or dtype.is_complex):
        return torch.get_default_dtype()
    if kind is KIND.BOOL_TO_LONG and dtype is torch.bool:
        return torch.long
    return dtype


def _is_tensor(argument: object) -> bool:
    return isinstance(argument, torch.fx.Node) and isinstance(argument.meta.get("val"), torch.Tensor)


def _cast(
    module: torch.fx.GraphModule, node: torch.fx.Node, argument: torch.fx.Node, dtype: torch.dtype
) -> torch.fx.Node:
    with module.graph.inserting_before(node):
        cast = module.graph.call_function(torch.ops.aten._to_copy.default, (argument,), {"dtype": dtype})
    value = argument.meta["val"]
    with value.fake_mode:
        cast.meta["val"] = torch.ops.aten._to_copy.default(value, dtype=dtype)
    for key in ("stack_trace", "nn_module_stack", "from_node"):
        if key in node.meta:
            cast.meta[key] = node.meta[key]
    return cast
