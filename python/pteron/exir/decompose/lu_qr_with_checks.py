"""Linear algebra whose kernels check their own results.

PyTorch decomposes `linalg.inv` and the like into a factorisation and a call that raises for a singular
matrix. That call has an effect and no result, which a program has no place for. Here the factorisation itself
is told to check, and the kernel raises as eager PyTorch does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload

aten = torch.ops.aten


def _inverse(matrix: torch.Tensor) -> torch.Tensor:
    return aten.linalg_inv_ex.default(matrix, check_errors=True)[0]  # type: ignore[no-any-return]


def _solve(matrix: torch.Tensor, right: torch.Tensor, *, left: bool = True) -> torch.Tensor:
    return aten._linalg_solve_ex.default(matrix, right, left=left, check_errors=True)[0]  # type: ignore[no-any-return]


def _cholesky(matrix: torch.Tensor, *, upper: bool = False) -> torch.Tensor:
    return aten.linalg_cholesky_ex.default(matrix, upper=upper, check_errors=True)[0]  # type: ignore[no-any-return]


def _lu_factor(matrix: torch.Tensor, *, pivot: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    factors, pivots, _ = aten.linalg_lu_factor_ex.default(matrix, pivot=pivot, check_errors=True)
    return factors, pivots


CHECKED_FACTORIZATIONS: dict[OpOverload, Callable[..., Any]] = {
    aten.inverse.default: _inverse,
    aten.linalg_cholesky.default: _cholesky,
    aten.linalg_inv.default: _inverse,
    aten.linalg_lu_factor.default: _lu_factor,
    aten.linalg_solve.default: _solve,
}
"""By operator; used in the place of PyTorch's."""
