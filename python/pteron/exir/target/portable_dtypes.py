"""Element types that ExecuTorch's portable kernels refuse.

Measured with the released runtime of 1.5.1, one operator and element type at a time; a test repeats a part of
it. Most kernels take the ten common types; these are the exceptions that a program can hold.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

_RARE = frozenset(
    {
        torch.float8_e5m2,
        torch.float8_e4m3fn,
        torch.float8_e5m2fnuz,
        torch.float8_e4m3fnuz,
        torch.uint16,
        torch.uint32,
        torch.uint64,
    }
)
_COMPLEX = frozenset({torch.complex32, torch.complex64, torch.complex128})

# Move whole elements and never look at them.
_MOVES_BYTES = frozenset(
    {
        "aten::embedding.out",
        "aten::expand_copy.out",
        "aten::index.Tensor_out",
        "aten::index_select.out",
        "aten::repeat.out",
        "aten::roll.out",
        "aten::select_copy.int_out",
        "aten::slice_copy.Tensor_out",
        "aten::squeeze_copy.dims_out",
        "aten::unsqueeze_copy.out",
        "aten::view_copy.out",
        "dim_order_ops::_clone_dim_order.out",
        # Copies whole tensors: write-backs of state.
        "aten::copy_",
        "executorch_prim::et_copy_index.tensor",
        "executorch_prim::et_view.default",
    }
)
_WITHOUT_COMPLEX = frozenset(
    {
        "aten::bitwise_and.Tensor_out",
        "aten::constant_pad_nd.out",
        "aten::eq.Tensor_out",
        "aten::flip.out",
        "aten::full_like.out",
        "aten::gather.out",
        "aten::index_put.out",
        "aten::lt.Tensor_out",
        "aten::max.unary_out",
        "aten::scatter.src_out",
        "aten::select_scatter.out",
        "aten::slice_scatter.out",
        "aten::split_with_sizes_copy.out",
        "aten::topk.values",
        "aten::tril.out",
        "aten::where.self_out",
    }
)


def refused_by_portable(operator: str, dtypes: Iterable[torch.dtype]) -> torch.dtype | None:
    """The first of the element types of a call that the kernel of `operator` (`aten::add.out`) refuses.

    Symbolic operators have no tensors that they compute with and are never refused.
    """
    if operator.startswith("aten::sym_") or operator in _MOVES_BYTES:
        return None
    for dtype in dtypes:
        if dtype in _RARE or (dtype in _COMPLEX and operator in _WITHOUT_COMPLEX):
            return dtype
    return None
