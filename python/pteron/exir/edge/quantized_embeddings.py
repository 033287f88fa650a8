"""Embedding tables of 8, 4 and 2 bits: `quantized_decomposed::embedding_byte`, `embedding_4bit` and
`embedding_2bit`, with the overloads `dtype`, `out` and `dtype_out`.

Rows of `weight` hold the table, several elements in a byte: of 4 bits the first element is the high half, of
2 bits the lowest quarter. `weight_scales` and `weight_zero_points` have one row for each row of the table and
one column for each group of elements in it. The result has `dtype`, else that of the scales.

Not imported while nobody asks for these operators: ExecuTorch's own package defines them too, and torch takes
one definition of a name. Where that package is imported later, these stay.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.ao.quantization.fx._decomposed import quantized_decomposed_lib

_ARGUMENTS = (
    "Tensor weight, Tensor weight_scales, Tensor? weight_zero_points, int weight_quant_min, "
    "int weight_quant_max, Tensor indices"
)
_OVERLOADS = {
    "": ") -> Tensor",
    ".dtype": ", *, ScalarType? dtype=None) -> Tensor",
    ".out": ", *, Tensor(a!) out) -> Tensor(a!)",
    ".dtype_out": ", *, ScalarType? dtype=None, Tensor(a!) out) -> Tensor(a!)",
}


def _bytes(weight: torch.Tensor) -> torch.Tensor:
    return weight


def _halves(weight: torch.Tensor) -> torch.Tensor:
    return _spread(weight, (4, 0), 15) - 8


def _quarters(weight: torch.Tensor) -> torch.Tensor:
    return _spread(weight, (0, 2, 4, 6), 3) - 2


def _spread(weight: torch.Tensor, shifts: tuple[int, ...], mask: int) -> torch.Tensor:
    parts = torch.stack([(weight >> shift) & mask for shift in shifts], dim=-1)
    return parts.reshape(weight.shape[0], -1).view(torch.int8)


#: Operator → how its elements are unpacked, and the range of an element (None: as stated by the caller).
_TABLES: dict[str, tuple[Any, tuple[int, int] | None]] = {
    "embedding_byte": (_bytes, None),
    "embedding_4bit": (_halves, (-8, 7)),
    "embedding_2bit": (_quarters, (-2, 1)),
}


def _look_up(
    operator: str,
    weight: torch.Tensor,
    scales: torch.Tensor,
    zero_points: torch.Tensor | None,
    stated: tuple[int, int],
    indices: torch.Tensor,
    dtype: torch.dtype | None,
) -> torch.Tensor:
    unpack, limits = _TABLES[operator]
    _check(operator, weight, scales, zero_points)
    if limits is not None and stated != limits:
        raise AssertionError(f"{operator}: expected quant_min and quant_max {limits}, got {stated}")
    table = unpack(weight)
    groups = scales.size(1) if scales.dim() == 2 else 1
    elements: torch.Tensor = torch.ops.quantized_decomposed.dequantize_per_channel_group.default(
        table,
        scales,
        zero_points,
        *stated,
        table.dtype,
        table.size(1) // groups,
        dtype or scales.dtype,
    )
    result: torch.Tensor = torch.ops.aten.embedding.default(elements, indices)
    return result


def _check(
    operator: str, weight: torch.Tensor, scales: torch.Tensor, zero_points: torch.Tensor | None
) -> None:
    if weight.dtype not in (torch.int8, torch.uint8) or weight.dim() != 2:
        raise AssertionError(
            f"{operator}: expected a weight of int8 or uint8 and 2 dimensions, got {weight.dtype} and "
            f"{weight.dim()}"
        )
    if scales.dtype not in (torch.float16, torch.float32, torch.bfloat16) or scales.dim() not in (1, 2):
        raise AssertionError(
            f"{operator}: expected floating-point scales of 1 or 2 dimensions, got {scales.dtype} and "
            f"{scales.dim()}"
        )
    if scales.size(0) != weight.size(0):
        raise AssertionError(
            f"{operator}: expected a row of scales for each row of the weight, got {scales.size(0)} and "
            f"{weight.size(0)}"
        )
    if zero_points is not None and (zero_points.dtype != scales.dtype or zero_points.shape != scales.shape):
        raise AssertionError(
            f"{operator}: expected zero points of the scales' dtype and shape, got {zero_points.dtype} of "
            f"{tuple(zero_points.shape)} beside {scales.dtype} of {tuple(scales.shape)}"
        )


def _define(operator: str, overload: str) -> None:
    def compute(
        weight: torch.Tensor,
        scales: torch.Tensor,
        zero_points: torch.Tensor | None,
        quant_min: int,
        quant_max: int,
        indices: torch.Tensor,
        *,
        dtype: torch.dtype | None = None,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        limits = (quant_min, quant_max)
        result = _look_up(operator, weight, scales, zero_points, limits, indices, dtype)
        return result if out is None else out.resize_(result.shape).copy_(result)

    # torch.library has no annotations.
    library: Any = quantized_decomposed_lib
    library.define(f"{operator}{overload}({_ARGUMENTS}{_OVERLOADS[overload]}")
    library.impl(f"{operator}{overload}", compute, "CompositeExplicitAutograd")


def _keep(names: frozenset[str]) -> None:
    """Lets a later module define and implement operators of these names, to no effect."""
    library: Any = quantized_decomposed_lib
    define, impl = library.define, library.impl

    def define_others(schema: str, *args: Any, **kwargs: Any) -> Any:
        name = schema.partition("(")[0].strip()
        return name if name in names else define(schema, *args, **kwargs)

    def implement_others(name: Any, *args: Any, **kwargs: Any) -> Any:
        return None if name in names else impl(name, *args, **kwargs)

    library.define, library.impl = define_others, implement_others


for _operator in _TABLES:
    for _overload in _OVERLOADS:
        _define(_operator, _overload)
_keep(frozenset(operator + overload for operator in _TABLES for overload in _OVERLOADS))
