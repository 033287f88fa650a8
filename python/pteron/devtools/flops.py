"""Floating-point operations of a call, from its operator and the largest shapes of its tensors."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from pteron.devtools.description import Call, MethodDescription, TensorValue


def with_tensors_of(plan: MethodDescription, file: MethodDescription) -> MethodDescription:
    """A plan with the tensors that fusion and folding took out of it, which its calls name, as the file has
    them.
    """
    known = [file.values[at] if at < len(file.values) else None for at in range(len(plan.values))]
    return replace(
        plan,
        values=tuple(
            other if value is None and isinstance(other, TensorValue) else value
            for value, other in zip(plan.values, known, strict=True)
        ),
    )


def flops(method: MethodDescription, call: Call, result: TensorValue | None = None) -> int:
    """Operations of one call: two for each multiplication and addition of a product, one for each element
    that other operators write, none for what only moves bytes.

    `result` is what the step of the call writes: it stands for tensors between fused calls, which a
    plan has no more.
    """
    if call.operator is None:
        return 0
    name = call.operator.split(".")[0].removeprefix("aten::")
    out = _tensor(method, call.args[-1]) if call.args else None
    out = out or result
    if out is None or name in MOVES:
        return 0
    written = prod(out.shape)
    factor = FACTORS.get(name)
    if factor is None or factor >= len(call.args):
        return written
    weight = _tensor(method, call.args[factor])
    if weight is None or not weight.shape:
        # Folded at load, in a part of a delegate: the other factor has the extent that is summed over.
        rows = _tensor(method, call.args[factor - 1]) if name in PRODUCTS else None
        return 2 * written * rows.shape[-1] if rows is not None and rows.shape else written
    if name == "convolution":
        image = _tensor(method, call.args[0])
        is_transposed = len(call.args) > 6 and method.values[call.args[6]] is True
        whole = prod(image.shape) if is_transposed and image is not None else written
        return 2 * whole * prod(weight.shape[1:])
    if name == "scaled_dot_product_attention":
        return 4 * written * (weight.shape[-2] if len(weight.shape) > 1 else 1)
    is_transposed = name == "linear" or len(weight.shape) < 2
    return 2 * written * weight.shape[-1 if is_transposed else -2]


def _tensor(method: MethodDescription, index: int) -> TensorValue | None:
    return next(method.leaves(index), None)


#: Position of the second factor of a product.
FACTORS = {
    "convolution": 1,
    "linear": 1,
    "mm": 1,
    "bmm": 1,
    "addmm": 2,
    "baddbmm": 2,
    "scaled_dot_product_attention": 1,
}

#: Those whose first factor, before the second one, is summed over along its last dimension.
PRODUCTS = {"linear", "mm", "bmm", "addmm", "baddbmm"}

#: Operators that compute nothing.
MOVES = {
    "_to_copy",
    "alias_copy",
    "as_strided_copy",
    "cat",
    "clone",
    "constant_pad_nd",
    "copy",
    "diagonal_copy",
    "embedding",
    "empty",
    "expand_copy",
    "fill",
    "full",
    "full_like",
    "gather",
    "index",
    "index_select",
    "narrow_copy",
    "permute_copy",
    "repeat",
    "scatter",
    "select_copy",
    "select_scatter",
    "slice_copy",
    "slice_scatter",
    "split_copy",
    "split_with_sizes_copy",
    "squeeze_copy",
    "stack",
    "t_copy",
    "transpose_copy",
    "unbind_copy",
    "unfold_copy",
    "unsqueeze_copy",
    "view_copy",
    "executor_prim::et_view",
    "dim_order_ops::_clone_dim_order",
    "dim_order_ops::_to_dim_order_copy",
}
