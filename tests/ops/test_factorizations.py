"""Factorisations whose vectors are unique only up to sign or rotation: they must rebuild the matrix."""

from __future__ import annotations

import pytest
import torch

from tests.ops.operator_case import OperatorCase as Case
from tests.ops.runtime_call import run_in_runtime
from tests.ops.sample_tensors import values

SHAPES = [(1, 1), (5, 5), (2, 7, 4), (3, 4, 7), (0, 3), (3, 0), (2, 0, 3, 3)]


def check_orthonormal_columns(q: torch.Tensor) -> None:
    identity = torch.eye(q.shape[-1], dtype=q.dtype).expand(*q.shape[:-2], -1, -1)
    torch.testing.assert_close(q.mT @ q, identity)


@pytest.mark.parametrize("is_deficient", [False, True])
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_singular_vectors(shape: tuple[int, ...], dtype: torch.dtype, full: bool, is_deficient: bool) -> None:
    a = values(shape, dtype)
    if is_deficient and a.numel():
        a[..., 0] = a[..., -1]
        a[..., -1, :] = 0
    case = Case("_linalg_svd", "U", (a, full, True))
    expected = case.expected()
    u, s, vh = run_in_runtime(case, expected)
    assert [t.shape for t in (u, s, vh)] == [t.shape for t in expected]
    assert bool((s[..., 1:] <= s[..., :-1]).all())
    inner = s.shape[-1]
    check_orthonormal_columns(u)
    check_orthonormal_columns(vh.mT)
    torch.testing.assert_close((u[..., :inner] * s[..., None, :]) @ vh[..., :inner, :], a)


@pytest.mark.parametrize("uplo", ["L", "U"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (2, 3, 6, 6), (0, 0), (0, 3, 3)], ids=str)
def test_eigenvectors(shape: tuple[int, ...], dtype: torch.dtype, uplo: str) -> None:
    a = values(shape, dtype)
    case = Case("_linalg_eigh", "eigenvalues", (a, uplo))
    w, v = run_in_runtime(case, case.expected())
    half = torch.tril(a) if uplo == "L" else torch.triu(a)
    symmetric = half + half.mT - torch.diag_embed(torch.diagonal(a, dim1=-2, dim2=-1))
    check_orthonormal_columns(v)
    torch.testing.assert_close((v * w[..., None, :]) @ v.mT, symmetric)
