"""Operator calls that make tensors of numbers, and overloads that repeat what another overload computes."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tests.ops.operator_case import OperatorCase as Case
from tests.ops.sample_tensors import ALL, FLOATS, INF, INTEGERS, NAN, channels_last, special, values


def ranges() -> Iterator[Case]:
    """Counts of integers and of floats that do not divide evenly."""
    for end in [0, 5, 7.0, 2.5, 0.1 * 3 / 0.1]:
        yield Case("arange", "out", (end,))
    for span in [
        (1, 9, 2),
        (5, -4, -3),
        (0.0, 1.0, 0.1),
        (1.0, 2.0, 0.3),
        (2, 2, 1),
        (-0.5, 0.55, 0.35),
        (0, 3, 0.75),
    ]:
        yield Case("arange", "start_out", span)
    for dtype in [torch.int32, torch.float64, torch.float16, torch.uint8]:
        yield Case("arange", "start_out", (1, 9, 2), {"dtype": dtype})


def constants() -> Iterator[Case]:
    """Ones, zeros, identities and any number."""
    for dtype in [None, *ALL]:
        options = {} if dtype is None else {"dtype": dtype}
        for op in ["ones", "zeros"]:
            yield Case(op, "out", ([2, 3],), dict(options))
        yield Case("eye", "out", (3,), dict(options))
        yield Case("eye", "m_out", (2, 4), dict(options))
        yield Case("scalar_tensor", "out", (1,), dict(options))
        yield Case("full", "out", ([2, 0, 3], 1), dict(options))
        yield Case("full", "out", ([], 1), dict(options))
    yield Case("full", "out", ([2], -0.0))
    yield Case("full", "out", ([2], NAN), {"dtype": torch.float64})
    yield Case("full", "out", ([2], -INF), {"dtype": torch.float16})
    yield Case("full", "out", ([2], True))
    for x in [*(values((2, 3), dtype) for dtype in ALL), channels_last((2, 3, 4, 5))]:
        for op in ["ones_like", "zeros_like"]:
            yield Case(op, "out", (x,))


def copies() -> Iterator[Case]:
    """What keeps every element."""
    for x in [
        *(values((2, 3), dtype) for dtype in ALL),
        channels_last((2, 3, 4, 5)),
        values(()),
        values((0, 2)),
        special(),
    ]:
        for op in ["alias_copy", "detach_copy", "lift_fresh_copy", "_conj_physical"]:
            yield Case(op, "out", (x,))
    for shape in [(1, 3, 1), (2, 3), (1, 1), (0, 1)]:
        yield Case("squeeze_copy", "out", (values(shape),))


def repeated_overloads() -> Iterator[Case]:
    """Overloads of operators that another overload stands for in most programs."""
    for dtype in ALL:
        x, y = values((3, 4), dtype), values((4,), dtype, 3)
        yield Case("max", "out", (x, y))
        yield Case("min", "out", (x, y))
        yield Case("all", "all_out", (x,))
        yield Case("sum", "out", (x,))
        if dtype != torch.bool:
            yield Case("rsub", "Tensor_out", (x, y))
            yield Case("floor_divide", "Scalar_out", (x, 3))
        if dtype in FLOATS:
            yield Case("mean", "dtype_out", (x,))
            yield Case("var", "out", (x, [0, 1]))
            yield Case("var", "out", (x, [0, 1], False))
        if dtype in INTEGERS:
            for op in ["bitwise_left_shift", "bitwise_right_shift"]:
                yield Case(op, "Tensor_Scalar_out", (x, 2))
        if dtype not in FLOATS:
            for op in ["bitwise_and", "bitwise_or", "bitwise_xor"]:
                yield Case(op, "Scalar_Tensor_out", (True if dtype == torch.bool else 5, x))
    yield Case("all", "all_out", (values((0, 3)),))
    yield Case("all", "all_out", (torch.tensor([1.0, NAN]),))
    yield Case("mean", "dtype_out", (values((3, 4), torch.int32),), note=" integers")
    x = values((2, 3, 4))
    yield Case("native_dropout", "out", (x, 0.5, False))


def small_functions() -> Iterator[Case]:
    """Parts and signs of floats, extremes that pass over NaN, rounding to places."""
    for dtype in ALL:
        x, y = values((3, 4), dtype), values((4,), dtype, 3)
        yield Case("fmax", "out", (x, y))
        yield Case("fmin", "out", (x, y))
        yield Case("signbit", "out", (x,))
        for places in [0, 1, 3, -1]:
            yield Case("round", "decimals_out", (x,), {"decimals": places})
        if dtype in FLOATS:
            yield Case("frexp", "Tensor_out", (x,))
    for dtype in [torch.float32, torch.float64]:
        x = special(dtype)
        yield Case("fmax", "out", (x, x.flip(0)), note=" special")
        yield Case("fmin", "out", (x, x.flip(0)), note=" special")
        yield Case("signbit", "out", (x,), note=" special")
        yield Case("frexp", "Tensor_out", (x[torch.isfinite(x)],), note=" special")
        yield Case(
            "frexp", "Tensor_out", (torch.tensor([1e-310, 1e-40, -1e-45, 3e38]).to(dtype),), note=" tiny"
        )
        yield Case("round", "decimals_out", (x,), {"decimals": 2}, note=" special")
        yield Case(
            "round",
            "decimals_out",
            (torch.tensor([0.125, 2.675, 1234.5678, -0.5]).to(dtype),),
            {"decimals": 2},
        )


def every_creation() -> Iterator[Case]:
    """The whole of this file."""
    yield from ranges()
    yield from constants()
    yield from copies()
    yield from repeated_overloads()
    yield from small_functions()
