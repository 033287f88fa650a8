"""How near a result must be to eager PyTorch's: the one table of tolerances, and the comparison."""

from __future__ import annotations

import torch

# Kernels compute in the same precision as eager PyTorch, with functions and orders of summation of their own.
TOLERANCE = {
    torch.float64: 1e-12,
    torch.float32: 3e-6,
    torch.complex64: 3e-6,
    torch.float16: 2e-3,
    torch.bfloat16: 1.6e-2,
}
"""Relative, and absolute for results whose largest number is one or more; all other dtypes are exact."""


def check_close(got: torch.Tensor, expected: torch.Tensor, place: str) -> None:
    """Equal dtype and shape; equal values, floats within what their precision allows."""
    difference = describe_difference(got, expected)
    assert difference is None, f"{place}: {difference}"


def describe_difference(
    got: torch.Tensor, expected: torch.Tensor, exact: torch.Tensor | None = None
) -> str | None:
    """What is wrong with a result, or None.

    `exact`: the same call in float64. Where eager PyTorch's own rounding takes it away from that, a result
    is right, too, that is as near to the exact one as the tolerance says or as PyTorch's own.
    """
    if got.dtype != expected.dtype:
        return f"dtype {got.dtype}, expected {expected.dtype}"
    if got.shape != expected.shape:
        return f"shape {tuple(got.shape)}, expected {tuple(expected.shape)}"
    right = _near(got, expected)
    if exact is not None and exact.shape == expected.shape and not bool(right.all()):
        right |= _near(got, exact.to(expected.dtype)) | _no_farther(got, expected, exact)
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


def _near(got: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Where two tensors agree: exactly, or within the tolerance of their dtype."""
    tolerance = TOLERANCE.get(expected.dtype)
    if tolerance is None:
        return got == expected
    wide = torch.complex128 if expected.is_complex() else torch.float64
    mine, theirs = got.to(wide), expected.to(wide)
    both_nan = mine.isnan() & theirs.isnan()
    finite = theirs[theirs.isfinite()]
    largest = float(finite.abs().max()) if finite.numel() else 0.0
    distance = (mine - theirs).abs()
    within = distance <= tolerance * min(1.0, largest) + tolerance * theirs.abs()
    return (mine == theirs) | both_nan | (within & theirs.isfinite())
