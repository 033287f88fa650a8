"""Decompositions that PyTorch lacks, or that fail when a program is decomposed with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._ops import OpOverload

aten = torch.ops.aten


def _addbmm(
    base: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    product = alpha * torch.bmm(left, right).sum(0)
    # With a factor of 0 even a NaN of the base must not count.
    return product.expand(base.shape) if beta == 0 else beta * base + product


def _diagonal_scatter(
    base: torch.Tensor, source: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> torch.Tensor:
    at = torch.arange(source.shape[-1], device=base.device)
    rows, columns = at + max(-offset, 0), at + max(offset, 0)
    moved = base.movedim((dim1, dim2), (0, 1))
    changed = torch.index_put(moved, (rows, columns), source.movedim(-1, 0))
    return changed.movedim((0, 1), (dim1, dim2))


def _pinv(
    matrix: torch.Tensor,
    *,
    atol: torch.Tensor | None = None,
    rtol: torch.Tensor | None = None,
    hermitian: bool = False,
) -> torch.Tensor:
    rows, columns = matrix.shape[-2:]
    if matrix.numel() == 0:
        return matrix.new_empty([*matrix.shape[:-2], columns, rows])
    if hermitian:
        values, vectors = aten._linalg_eigh.default(matrix)
        left, right, sizes = vectors, vectors.mT, values.abs()
    else:
        left, values, right = aten._linalg_svd.default(matrix)
        sizes = values
    absolute = torch.zeros((), dtype=matrix.dtype) if atol is None else atol
    if rtol is None:
        # An absolute tolerance alone leaves the relative one out.
        eps = max(rows, columns) * torch.finfo(matrix.dtype).eps
        relative = torch.full((), eps, dtype=matrix.dtype)
        if atol is not None:
            relative = torch.where(atol > 0, torch.zeros_like(relative), relative)
    else:
        relative = rtol
    least = torch.maximum(absolute.unsqueeze(-1), relative.unsqueeze(-1) * sizes.amax(-1, keepdim=True))
    inverted = torch.where(sizes > least, values.reciprocal(), torch.zeros_like(values))
    scaled = right.mT * inverted.unsqueeze(-2)
    product = torch.bmm(
        scaled.reshape(-1, columns, values.shape[-1]), left.mT.reshape(-1, values.shape[-1], rows)
    )
    return product.reshape([*matrix.shape[:-2], columns, rows])


def _empty_permuted(size: Sequence[int], physical_layout: Sequence[int], **options: Any) -> torch.Tensor:
    physical = torch.empty([size[dim] for dim in physical_layout], **options)
    order = sorted(range(len(size)), key=lambda dim: physical_layout[dim])
    return physical if order == list(range(len(size))) else physical.permute(order)


def _trilinear(
    first: torch.Tensor,
    second: torch.Tensor,
    third: torch.Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> torch.Tensor:
    operands = [first, second, third]
    for i, dims in enumerate((expand1, expand2, expand3)):
        for dim in sorted(dims):
            operands[i] = operands[i].unsqueeze(dim)
    product = operands[0] * operands[1] * operands[2]
    return product.sum(list(sumdim)) if sumdim else product


def _normal_functional(
    base: torch.Tensor, mean: float = 0.0, std: float = 1.0, *, generator: None = None
) -> torch.Tensor:
    drawn: torch.Tensor = aten.normal.float_float(mean, std, base.shape, dtype=base.dtype, device=base.device)
    return drawn


def _uniform(
    base: torch.Tensor, low: float = 0.0, high: float = 1.0, *, generator: None = None
) -> torch.Tensor:
    return torch.rand(base.shape, dtype=base.dtype, device=base.device) * (high - low) + low


MISSING_DECOMPOSITIONS: dict[OpOverload, Callable[..., Any]] = {
    aten.__lshift__.Scalar: torch.bitwise_left_shift,
    aten.__lshift__.Tensor: torch.bitwise_left_shift,
    aten.__rshift__.Scalar: torch.bitwise_right_shift,
    aten.__rshift__.Tensor: torch.bitwise_right_shift,
    aten.addbmm.default: _addbmm,
    aten._trilinear.default: _trilinear,
    aten.diagonal_scatter.default: _diagonal_scatter,
    aten.empty_permuted.default: _empty_permuted,
    aten.linalg_pinv.atol_rtol_tensor: _pinv,
    aten.normal_functional.default: _normal_functional,
    aten.uniform.default: _uniform,
}
"""By operator; used where PyTorch's default table has nothing."""
