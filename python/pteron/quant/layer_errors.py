"""How much a quantised layer differs from the float one."""

from __future__ import annotations

import math

import torch


def relative_error(expected: torch.Tensor, got: torch.Tensor) -> float:
    """The root mean square of the difference as a part of that of `expected`; infinite where one of the two
    is not finite or `expected` is all 0 and `got` is not.
    """
    a, b = expected.double(), got.double()
    size, difference = float(a.square().mean().sqrt()), float((a - b).square().mean().sqrt())
    if not math.isfinite(difference):
        return math.inf
    if size == 0:
        return 0.0 if difference == 0 else math.inf
    return difference / size
