"""Operator calls at the edges of their definitions: zeros with signs, NaN, division by zero, widths, empty
dimensions, ties, mixed dtypes. A note with `signs` has the signs of zeros compared as well.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tests.ops.operator_case import OperatorCase as Case
from tests.ops.sample_tensors import ALL, INF, INTEGERS, NAN, special, values

_EDGES = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 0.5, -0.5, INF, -INF, NAN, 1e-30]


def _grid(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Every pair of edge values."""
    x = torch.tensor(_EDGES, dtype=dtype)
    return x.repeat_interleave(len(x)), x.repeat(len(x))


def divisions() -> Iterator[Case]:
    """Rounded quotients and remainders of floats of either sign, and of integers by zero."""
    for dtype in [torch.float32, torch.float64]:
        a, b = _grid(dtype)
        for op, overload in [
            ("fmod", "Tensor_out"),
            ("remainder", "Tensor_out"),
            ("floor_divide", "out"),
            ("div", "out"),
        ]:
            yield Case(op, overload, (a, b), note=" signs")
        for mode in ["floor", "trunc", None]:
            yield Case("div", "out_mode", (a, b), {"rounding_mode": mode}, note=" signs")
        for number in [0.0, -0.0, 3.0, -3.0, INF]:
            for op in ["fmod", "remainder"]:
                yield Case(op, "Scalar_out", (torch.tensor(_EDGES, dtype=dtype), number), note=" signs")
    for dtype in INTEGERS:
        x, zero = values((5,), dtype), torch.zeros(5, dtype=dtype)
        for op, overload in [("fmod", "Tensor_out"), ("remainder", "Tensor_out"), ("floor_divide", "out")]:
            yield Case(op, overload, (x, zero), note=" by zero")
        for mode in ["floor", "trunc"]:
            yield Case("div", "out_mode", (x, zero), {"rounding_mode": mode}, note=" by zero")
        yield Case("div", "out", (x, zero), note=" by zero")
    low = torch.tensor([-128, -127, 127], dtype=torch.int8)
    for op, overload in [("fmod", "Tensor_out"), ("remainder", "Tensor_out"), ("floor_divide", "out")]:
        yield Case(op, overload, (low, torch.full((3,), -1, dtype=torch.int8)), note=" smallest")


def powers_and_shifts() -> Iterator[Case]:
    """Negative bases and exponents, shifts by the width and more."""
    for dtype in [torch.float32, torch.float64]:
        a, b = _grid(dtype)
        yield Case("pow", "Tensor_Tensor_out", (a, b), note=" signs")
        yield Case("atan2", "out", (a, b), note=" signs")
        yield Case("copysign", "out", (a, b), note=" signs")
        for exponent in [0, 1, 2, 3, -1, -2, 0.5, -0.5, 1.5]:
            yield Case(
                "pow", "Tensor_Scalar_out", (torch.tensor(_EDGES, dtype=dtype), exponent), note=" signs"
            )
        for base in [0.0, -1.0, 2.0, -2.0, INF]:
            yield Case("pow", "Scalar_out", (base, torch.tensor(_EDGES, dtype=dtype)), note=" signs")
    for dtype in INTEGERS:
        x = values((7,), dtype)
        yield Case("pow", "Tensor_Scalar_out", (x, 3))
        yield Case("pow", "Tensor_Scalar_out", (x, 0))
        yield Case("pow", "Tensor_Scalar_out", (x, -1), note=" negative")
        yield Case("pow", "Tensor_Tensor_out", (x, torch.tensor([0, 1, 2, 3, 4, 5, 9], dtype=dtype)))
        if dtype != torch.uint8:
            signs = torch.tensor([1, -1, 2, -3, 1, -1, 5], dtype=dtype)
            yield Case(
                "pow", "Tensor_Tensor_out", (signs, torch.tensor([-1, -1, -1, -2, -3, -2, 0], dtype=dtype))
            )
        width = dtype.itemsize * 8
        by = torch.tensor([0, 1, width - 1, min(width, 127), min(width + 1, 127), 3, 2], dtype=dtype)
        for op in ["bitwise_left_shift", "bitwise_right_shift"]:
            yield Case(op, "Tensor_out", (x, by))
            if dtype != torch.uint8:
                yield Case(op, "Tensor_out", (x, -by), note=" backwards")


def extremes() -> Iterator[Case]:
    """NaN, ties and zeros of either sign in what chooses the larger."""
    holed = torch.tensor([[1.0, NAN, 3.0, NAN], [2.0, 2.0, 0.0, -0.0], [-INF, INF, INF, 1.0]])
    for dtype in [torch.float32, torch.float64, torch.float16, torch.bfloat16]:
        x = holed.to(dtype)
        for op in ["argmax", "argmin"]:
            for dim in [None, 0, 1]:
                yield Case(op, "out", (x, dim), note=" NaN")
        for op, overload in [("max", "dim_max"), ("min", "dim_min")]:
            for dim in [0, 1]:
                yield Case(op, overload, (x, dim), note=" NaN")
        for op in ["amax", "amin"]:
            yield Case(op, "out", (x, [1]), note=" NaN")
        for op in ["max", "min"]:
            yield Case(op, "unary_out", (x,), note=" NaN")
        a, b = _grid(dtype)
        for op in ["maximum", "minimum"]:
            yield Case(op, "out", (a, b), note=" NaN")
        for descending in [False, True]:
            yield Case(
                "sort",
                "values_stable",
                (x,),
                {"stable": True, "dim": 1, "descending": descending},
                note=" NaN",
            )
        edges = torch.tensor(_EDGES, dtype=dtype)
        yield Case("relu", "out", (edges,), note=" signs")
        for bounds in [(2.0, -2.0), (NAN, 1.0), (None, 0.0), (-0.5, None), (-INF, INF)]:
            yield Case("clamp", "out", (edges, *bounds))
        yield Case(
            "clamp", "Tensor_out", (edges, torch.tensor(1.0, dtype=dtype), torch.tensor(-1.0, dtype=dtype))
        )
        for op in ["sign", "round", "trunc", "ceil", "floor", "neg", "abs"]:
            yield Case(op, "out", (edges,), note=" signs")
    for dtype in [*INTEGERS, torch.bool]:
        tied = values((4, 5), dtype) % 3 if dtype != torch.bool else values((4, 5), dtype)
        if dtype != torch.bool:
            yield Case("argmax", "out", (tied, 1), note=" ties")
            yield Case("argmin", "out", (tied, 0), note=" ties")
        yield Case("sort", "values_stable", (tied,), {"stable": True, "dim": 1}, note=" ties")


def empty_reductions() -> Iterator[Case]:
    """What nothing adds up to, and what has no extreme."""
    for shape, dims in [((0,), [0]), ((0, 3), [0]), ((0, 3), [1]), ((2, 0), [1]), ((2, 0), [])]:
        x = values(shape)
        yield Case("sum", "IntList_out", (x, dims))
        yield Case("mean", "out", (x, dims))
        yield Case("amax", "out", (x, dims))
        yield Case("any", "dims_out", (x, dims or None))
        yield Case("all", "dims_out", (x, dims or None))
        yield Case("var", "correction_out", (x, dims or None), {"correction": 1})
        if dims:
            for op, overload in [
                ("prod", "int_out"),
                ("cumsum", "out"),
                ("argmax", "out"),
                ("max", "dim_max"),
                ("cumprod", "out"),
            ]:
                yield Case(op, overload, (x, dims[0]))
    for op, overload in [("max", "unary_out"), ("min", "unary_out"), ("argmax", "out"), ("prod", "out")]:
        yield Case(op, overload, (values((0,)),))
    for dtype in [*INTEGERS, torch.bool]:
        x = values((3, 4), dtype)
        yield Case("mean", "out", (x, [0]), note=" integers")
        yield Case("var", "correction_out", (x, [0]), {"correction": 1}, note=" integers")
        for op in ["cumsum", "cumprod"]:
            yield Case(op, "out", (x, 1))
        yield Case("sum", "IntList_out", (torch.full((300,), 1, dtype=dtype), [0]))
        yield Case("prod", "int_out", (x, 0))


def mixed_dtypes() -> Iterator[Case]:
    """Promotion of tensors, tensors without dimensions and numbers."""
    tensors = [values((3,), dtype) for dtype in ALL]
    points = [torch.tensor(2, dtype=torch.int64), torch.tensor(1.5, dtype=torch.float64), torch.tensor(True)]
    points += [torch.tensor(1.5, dtype=torch.float16), torch.tensor(2, dtype=torch.uint8)]
    for x in tensors:
        for y in [*tensors, *points]:
            yield Case("mul", "out", (x, y))
            yield Case("where", "self_out", (torch.tensor([True, False, True]), x, y))
        for y in points:
            yield Case("lt", "Tensor_out", (x, y))
            yield Case("maximum", "out", (x, y))
        for number in [2, 1.5, True]:
            yield Case("mul", "Scalar_out", (x, number))
            yield Case("eq", "Scalar_out", (x, number))
            yield Case("pow", "Tensor_Scalar_out", (x, number))
        yield Case("add", "out", (x, x), {"alpha": 2})
        yield Case("add", "out", (x, x), {"alpha": 1.5}, note=" fraction")
    for point in points:
        for other in points:
            yield Case("add", "out", (point, other))
    big = torch.tensor([2**53 + 1, -(2**53) - 1, 2**31], dtype=torch.int64)
    yield Case("eq", "Tensor_out", (big, big.double()))
    yield Case("eq", "Tensor_out", (big, big.float()))
    yield Case("eq", "Scalar_out", (big, float(2**53)))


def bad_positions() -> Iterator[Case]:
    """Positions outside, negative ones and misfits."""
    x = values((3, 4))
    outside, negative = torch.tensor([[0, 4]]), torch.tensor([[0, -1]])
    for index, note in [(outside, " outside"), (negative, " negative")]:
        yield Case("gather", "out", (x, 1, index), note=note)
        yield Case("scatter", "src_out", (x, 1, index, values((1, 2))), note=note)
        yield Case("scatter_add", "out", (x, 1, index, values((1, 2))), note=note)
        yield Case("index_select", "out", (x, 1, index[0]), note=note)
        yield Case("embedding", "out", (x, index), note=note)
        yield Case("index", "Tensor_out", (x, [None, index[0]]), note=note)
        yield Case("index_put", "out", (x, [None, index[0]], torch.tensor(1.0)), note=note)
    yield Case("repeat_interleave", "Tensor_out", (torch.tensor([2, 0, 3]),), largest=(5,))
    yield Case("repeat_interleave", "Tensor_out", (torch.tensor([2, -1, 3]),), note=" negative")
    yield Case("log", "out", (special(),), note=" special")
    for dim in [2, -3]:
        yield Case("cumsum", "out", (x, dim), note=" no such dimension")
        yield Case("gather", "out", (x, dim, torch.zeros(1, 1, dtype=torch.int64)), note=" no such dimension")
        yield Case("_softmax", "out", (x, dim, False), note=" no such dimension")


def every_corner() -> Iterator[Case]:
    """The whole of this file."""
    yield from divisions()
    yield from powers_and_shifts()
    yield from extremes()
    yield from empty_reductions()
    yield from mixed_dtypes()
    yield from bad_positions()
