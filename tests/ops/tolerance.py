"""How near a result must be to the expected one: the one table of tolerances, and the comparison."""

from __future__ import annotations

import fnmatch

import torch

# Kernels compute in the same precision as eager PyTorch, with functions and orders of summation of their own.
TOLERANCE = {
    torch.float64: 1e-12,
    torch.float32: 3e-6,
    torch.complex64: 3e-6,
    # Kernels of 16-bit floats compute in float32 and round once, and so is the expected number rounded once
    # (wide_oracle.py). Two numbers rounded from nearly the same one are equal or neighbours: they differ by
    # at most one step of the dtype, 2^-10 or 2^-7 of the number.
    torch.float16: 2.0**-10,
    torch.bfloat16: 2.0**-7,
}
"""Relative, and absolute for results whose largest number is one or more; all other dtypes are exact."""

# The absolute part of 16-bit floats: what float32 may be off, and the step of float16's smallest numbers.
_ABSOLUTE = {torch.float16: TOLERANCE[torch.float32] + 2.0**-24, torch.bfloat16: TOLERANCE[torch.float32]}

# Kernels that add to their 16-bit results, as eager PyTorch does: every addition rounds. The cases add at
# most four numbers to one, so that two steps of the largest may be lost, whatever is left of the sum.
ADDED_IN_16_BITS = (
    "aten::avg_pool2d_backward*",
    "aten::_adaptive_avg_pool2d_backward*",
    "aten::embedding_dense_backward*",
)

# Where an image is read is computed in float32, by eager PyTorch too: at pixel 40 that is off by 2^-19 of
# one, and cubic weights multiply it by the difference of neighbours.
PLACES_IN_FLOAT32 = ("aten::*upsample_*",)
_FLOAT32_PLACES = 2.0**-13


def check_close(
    got: torch.Tensor,
    expected: torch.Tensor,
    place: str,
    operator: str = "",
    exact: torch.Tensor | None = None,
) -> None:
    """Equal dtype and shape; equal values, floats within what their precision allows."""
    difference = describe_difference(got, expected, operator, exact)
    assert difference is None, f"{place}: {difference}"


def describe_difference(
    got: torch.Tensor, expected: torch.Tensor, operator: str = "", exact: torch.Tensor | None = None
) -> str | None:
    """What is wrong with a result, or None.

    `exact`: the same call in float64. Where eager PyTorch's own rounding takes it away from that, a result
    is right, too, that is as near to the exact one as the tolerance says or as PyTorch's own.
    """
    if got.dtype != expected.dtype:
        return f"dtype {got.dtype}, expected {expected.dtype}"
    if got.shape != expected.shape:
        return f"shape {tuple(got.shape)}, expected {tuple(expected.shape)}"
    right = _near(got, expected, operator)
    if exact is not None and exact.shape == expected.shape and not bool(right.all()):
        right |= _near(got, exact.to(expected.dtype), operator) | _no_farther(got, expected, exact)
    if bool(right.all()):
        return None
    wrong = (~right).nonzero()
    at = tuple(wrong[0].tolist())
    text = f"{len(wrong)} of {got.numel()} elements differ, first at {list(at)}: {got[at].item()!r}"
    return f"{text}, expected {expected[at].item()!r}"


def _no_farther(got: torch.Tensor, expected: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Where a result is as near to the exact one as the worst element of the expected one is."""
    theirs = (expected.to(exact.dtype) - exact).abs()
    theirs = theirs[theirs.isfinite()]
    if not theirs.numel():
        return torch.zeros(got.shape, dtype=torch.bool)
    return (got.to(exact.dtype) - exact).abs() <= theirs.max()


def _near(got: torch.Tensor, expected: torch.Tensor, operator: str) -> torch.Tensor:
    """Where two tensors agree: exactly, or within the tolerance of their dtype."""
    if expected.dtype not in TOLERANCE:
        return got == expected
    relative, absolute = _bounds(expected.dtype, operator)
    wide = torch.complex128 if expected.is_complex() else torch.float64
    mine, theirs = got.to(wide), expected.to(wide)
    both_nan = mine.isnan() & theirs.isnan()
    finite = theirs[theirs.isfinite()]
    largest = float(finite.abs().max()) if finite.numel() else 0.0
    distance = (mine - theirs).abs()
    within = distance <= absolute * min(1.0, largest) + relative * theirs.abs()
    return (mine == theirs) | both_nan | (within & theirs.isfinite())


def _bounds(dtype: torch.dtype, operator: str) -> tuple[float, float]:
    """How far a number may be off: relative to itself, and relative to one."""
    relative = TOLERANCE[dtype]
    absolute = _ABSOLUTE.get(dtype, relative)
    if dtype not in _ABSOLUTE:
        return relative, absolute
    if _is_among(operator, ADDED_IN_16_BITS):
        return 2 * relative, 2 * relative
    return relative, max(absolute, _FLOAT32_PLACES if _is_among(operator, PLACES_IN_FLOAT32) else 0.0)


def _is_among(operator: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(operator, pattern) for pattern in patterns)
