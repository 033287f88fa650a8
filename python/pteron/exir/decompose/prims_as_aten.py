"""PyTorch's primitive operators (`prims`), written with ATen.

Many of PyTorch's reference decompositions end in primitives, which have no overload that writes into given
tensors and no kernel anywhere. Each means what an ATen operator means, so the graph says that instead.
Primitives get operands of one dtype and one shape: promotion is done before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._ops import OpOverload

aten = torch.ops.aten
prims = torch.ops.prims

# Primitives that take what the ATen operator takes.
_SAME_CALL: dict[OpOverload, OpOverload] = {
    prims.abs.default: aten.abs.default,
    prims.acos.default: aten.acos.default,
    prims.acosh.default: aten.acosh.default,
    prims.add.default: aten.add.Tensor,
    prims.asin.default: aten.asin.default,
    prims.asinh.default: aten.asinh.default,
    prims.atan.default: aten.atan.default,
    prims.atan2.default: aten.atan2.default,
    prims.atanh.default: aten.atanh.default,
    prims.bessel_i0.default: aten.i0.default,
    prims.bessel_i0e.default: aten.special_i0e.default,
    prims.bessel_i1.default: aten.special_i1.default,
    prims.bessel_i1e.default: aten.special_i1e.default,
    prims.bessel_j0.default: aten.special_bessel_j0.default,
    prims.bessel_j1.default: aten.special_bessel_j1.default,
    prims.bitwise_and.default: aten.bitwise_and.Tensor,
    prims.bitwise_not.default: aten.bitwise_not.default,
    prims.bitwise_or.default: aten.bitwise_or.Tensor,
    prims.bitwise_xor.default: aten.bitwise_xor.Tensor,
    prims.cat.default: aten.cat.default,
    prims.ceil.default: aten.ceil.default,
    prims.cos.default: aten.cos.default,
    prims.cosh.default: aten.cosh.default,
    prims.digamma.default: aten.digamma.default,
    prims.eq.default: aten.eq.Tensor,
    prims.erf.default: aten.erf.default,
    prims.erf_inv.default: aten.erfinv.default,
    prims.erfc.default: aten.erfc.default,
    prims.erfcx.default: aten.special_erfcx.default,
    prims.exp.default: aten.exp.default,
    prims.exp2.default: aten.exp2.default,
    prims.expm1.default: aten.expm1.default,
    prims.fill.default: aten.fill.Scalar,
    prims.floor.default: aten.floor.default,
    prims.fmax.default: aten.fmax.default,
    prims.fmin.default: aten.fmin.default,
    prims.fmod.default: aten.fmod.Tensor,
    prims.frexp.default: aten.frexp.Tensor,
    prims.gcd.default: aten.gcd.default,
    prims.ge.default: aten.ge.Tensor,
    prims.gt.default: aten.gt.Tensor,
    prims.hypot.default: aten.hypot.default,
    prims.igamma.default: aten.igamma.default,
    prims.igammac.default: aten.igammac.default,
    prims.le.default: aten.le.Tensor,
    prims.lgamma.default: aten.lgamma.default,
    prims.log.default: aten.log.default,
    prims.log10.default: aten.log10.default,
    prims.log1p.default: aten.log1p.default,
    prims.log2.default: aten.log2.default,
    prims.lt.default: aten.lt.Tensor,
    prims.maximum.default: aten.maximum.default,
    prims.minimum.default: aten.minimum.default,
    prims.mul.default: aten.mul.Tensor,
    prims.ndtri.default: aten.special_ndtri.default,
    prims.ne.default: aten.ne.Tensor,
    prims.neg.default: aten.neg.default,
    prims.nextafter.default: aten.nextafter.default,
    prims.pow.default: aten.pow.Tensor_Tensor,
    prims.reciprocal.default: aten.reciprocal.default,
    prims.remainder.default: aten.remainder.Tensor,
    prims.rev.default: aten.flip.default,
    prims.round.default: aten.round.default,
    prims.rsqrt.default: aten.rsqrt.default,
    prims.shift_left.default: aten.bitwise_left_shift.Tensor,
    prims.shift_right_arithmetic.default: aten.bitwise_right_shift.Tensor,
    prims.sign.default: aten.sign.default,
    prims.signbit.default: aten.signbit.default,
    prims.sin.default: aten.sin.default,
    prims.sinh.default: aten.sinh.default,
    prims.spherical_bessel_j0.default: aten.special_spherical_bessel_j0.default,
    prims.sqrt.default: aten.sqrt.default,
    prims.sub.default: aten.sub.Tensor,
    prims.tan.default: aten.tan.default,
    prims.tanh.default: aten.tanh.default,
    prims.trunc.default: aten.trunc.default,
    prims.zeta.default: aten.special_zeta.default,
}


def _div(a: torch.Tensor, b: torch.Tensor) -> Any:
    # The primitive divides integers as C does.
    if a.dtype.is_floating_point or a.dtype.is_complex:
        return aten.div.Tensor(a, b)
    return aten.div.Tensor_mode(a, b, rounding_mode="trunc")


def _all_dims(tensor: torch.Tensor, dims: Sequence[int] | None) -> list[int]:
    return list(range(tensor.dim())) if dims is None else [d % tensor.dim() for d in dims]


def _prod(
    tensor: torch.Tensor, dims: Sequence[int] | None, *, output_dtype: torch.dtype | None = None
) -> Any:
    # ATen's multiplies along one dimension; from the last, so that the others keep their numbers.
    result = tensor if output_dtype is None else tensor.to(output_dtype)
    for dim in sorted(_all_dims(tensor, dims), reverse=True):
        result = aten.prod.dim_int(result, dim, dtype=result.dtype)
    return result


def _sum(tensor: torch.Tensor, dims: Sequence[int] | None, *, output_dtype: torch.dtype | None = None) -> Any:
    return aten.sum.dim_IntList(tensor, _all_dims(tensor, dims), dtype=output_dtype or tensor.dtype)


def _var(
    tensor: torch.Tensor,
    dims: Sequence[int] | None,
    correction: float | None = 1,
    *,
    output_dtype: torch.dtype | None = None,
) -> Any:
    result = aten.var.correction(tensor, dims, correction=correction)
    return result if output_dtype is None else result.to(output_dtype)


def _extreme(op: OpOverload) -> Callable[..., Any]:
    def rule(
        tensor: torch.Tensor, dims: Sequence[int] | None, *, output_dtype: torch.dtype | None = None
    ) -> Any:
        result = op(tensor, _all_dims(tensor, dims))
        return result if output_dtype is None else result.to(output_dtype)

    return rule


def _normal(
    shape: Sequence[int],
    *,
    mean: float,
    std: float,
    dtype: torch.dtype,
    device: torch.device,
    requires_grad: bool,
    generator: Any = None,
) -> Any:
    return aten.randn.default(shape, dtype=dtype, device=device) * std + mean


def _broadcast_in_dim(tensor: torch.Tensor, shape: Sequence[int], broadcast_dimensions: Sequence[int]) -> Any:
    kept = set(broadcast_dimensions)
    for dim in range(len(shape)):
        if dim not in kept:
            tensor = aten.unsqueeze.default(tensor, dim)
    return aten.expand.default(tensor, list(shape))


def _as_strided_scatter(
    base: torch.Tensor,
    source: torch.Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int,
) -> Any:
    # Positions in memory, which `as_strided_copy` reads a tensor in, too.
    at = torch.full([], storage_offset, dtype=torch.int64)
    for dim, (extent, step) in enumerate(zip(size, stride, strict=True)):
        along = [1] * dim + [extent] + [1] * (len(size) - dim - 1)
        at = at + (torch.arange(extent) * step).reshape(along)
    # Dimensions as they lie in memory, the outermost first: extents of one have no place there.
    order = list(range(base.dim()))
    if not base.is_contiguous():
        strides = base.stride()
        order.sort(key=lambda d: (-strides[d], base.shape[d] == 1))
    in_memory = aten.permute.default(base, order)
    if base.numel() and not in_memory.is_contiguous():
        raise NotImplementedError(
            f"as_strided_scatter: a tensor of shape {list(base.shape)} and strides {list(base.stride())} "
            "does not fill its memory; expected one that does, call contiguous() before"
        )
    flat = in_memory.reshape(-1)
    changed = aten.index_put.default(flat, [at.reshape(-1)], source.reshape(-1)).reshape(in_memory.shape)
    return aten.permute.default(changed, sorted(range(base.dim()), key=order.__getitem__))


def _scalar_tensor(
    number: float,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
) -> Any:
    return aten.scalar_tensor.default(number, dtype=dtype, device=device)


def _where(condition: torch.Tensor, a: torch.Tensor | float, b: torch.Tensor | float) -> Any:
    # Beside a tensor there may be a number, in spite of the schema.
    dtype = next((each.dtype for each in (a, b) if isinstance(each, torch.Tensor)), None)
    as_tensors = (
        each if isinstance(each, torch.Tensor) else torch.scalar_tensor(each, dtype=dtype) for each in (a, b)
    )
    return aten.where.self(condition, *as_tensors)


PRIMS_AS_ATEN: dict[OpOverload, Callable[..., Any]] = {
    **_SAME_CALL,
    prims.amax.default: _extreme(aten.amax.default),
    prims.amin.default: _extreme(aten.amin.default),
    prims.as_strided_scatter.default: _as_strided_scatter,
    prims.broadcast_in_dim.default: _broadcast_in_dim,
    prims.div.default: _div,
    prims.normal.default: _normal,
    prims.prod.default: _prod,
    prims.scalar_tensor.default: _scalar_tensor,
    prims.sum.default: _sum,
    prims.var.default: _var,
    prims.where.default: _where,
}
"""A decomposition for every primitive that PyTorch's reference decompositions leave behind."""

SCALAR_OPS_OF_ONE_NODE = frozenset(
    {
        *(op for op in _SAME_CALL.values() if torch.Tag.core not in op.tags),
        # Their decompositions need primitives that ATen has only in them, or write into parts of a tensor.
        aten.bitwise_left_shift.Tensor_Scalar,
        aten.bitwise_right_shift.Tensor_Scalar,
        aten.complex.default,
        aten.copysign.Tensor,
        aten.polar.default,
    }
)
"""Operators that PyTorch does not call core, but that only a primitive could stand for: they stay whole."""
