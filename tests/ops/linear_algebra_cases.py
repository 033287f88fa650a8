"""Operator calls of dense linear algebra whose results are unique; the others have tests of their own."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tests.ops.operator_case import OperatorCase as Case
from tests.ops.sample_tensors import INF, NAN, values

aten = torch.ops.aten
PRECISE = [torch.float32, torch.float64]


def regular(shape: tuple[int, ...], dtype: torch.dtype = torch.float64, seed: int = 0) -> torch.Tensor:
    """Matrices that are far from singular and still need row exchanges."""
    n = shape[-1]
    return (
        values(shape, dtype, seed) / 8 + 2 * n * torch.eye(n, dtype=dtype).flip(0)
        if n
        else values(shape, dtype)
    )


def definite(shape: tuple[int, ...], dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Positive definite matrices."""
    x = values(shape, dtype) / 4
    return x @ x.mT + shape[-1] * torch.eye(shape[-1], dtype=dtype)


def factorizations() -> Iterator[Case]:
    """LU, Cholesky and QR; inverses and determinants."""
    for dtype in PRECISE:
        for shape in [(4, 4), (2, 3, 5, 5), (1, 1), (0, 0), (0, 3, 3)]:
            a = regular(shape, dtype)
            yield Case("linalg_lu_factor_ex", "out", (a,))
            yield Case("linalg_lu", "out", (a,))
            yield Case("linalg_inv_ex", "inverse", (a,))
            yield Case("linalg_inv_ex", "inverse", (a.mT,))
            yield Case("_linalg_det", "result", (a,))
            yield Case("_linalg_slogdet", "sign", (a,))
            yield Case("_linalg_slogdet", "sign", (a.mT,))
            yield Case("linalg_matrix_exp", "out", (a / 8,))
            for upper in [False, True]:
                yield Case("linalg_cholesky_ex", "L", (definite(shape, dtype),), {"upper": upper})
                yield Case("cholesky", "out", (definite(shape, dtype), upper))
        for shape in [(4, 6), (6, 4), (2, 5, 3), (3, 0), (0, 3)]:
            x = values(shape, dtype)
            yield Case("linalg_lu_factor_ex", "out", (x,))
            yield Case("linalg_lu", "out", (x,))
            yield Case("geqrf", "a", (x,))
            for mode in ["reduced", "complete", "r"]:
                yield Case("linalg_qr", "out", (x, mode))
        yield Case("linalg_matrix_exp", "out", (values((3, 4, 4), dtype) / 4,))
        yield Case("_linalg_slogdet", "sign", (torch.zeros(2, 2, dtype=dtype),))
        yield Case("_linalg_det", "result", (torch.zeros(2, 2, dtype=dtype),))
        lu, pivots, _ = aten.linalg_lu_factor_ex(regular((2, 4, 4), dtype))
        for parts in [(True, True), (True, False), (False, True)]:
            yield Case("lu_unpack", "out", (lu, pivots, *parts))
    yield from _refused()


def _refused() -> Iterator[Case]:
    singular, indefinite = torch.ones(3, 3), torch.diag(torch.tensor([1.0, -1.0, 2.0]))
    wide, holed = values((2, 3)), torch.full((2, 2), NAN)
    yield Case("linalg_inv_ex", "inverse", (singular,), {"check_errors": True}, note=" singular")
    yield Case("linalg_lu_factor_ex", "out", (singular,), {"check_errors": True}, note=" singular")
    yield Case("linalg_cholesky_ex", "L", (indefinite,), {"check_errors": True}, note=" indefinite")
    yield Case("linalg_cholesky_ex", "L", (indefinite + 3 * singular,), note=" indefinite, unchecked")
    yield Case("cholesky_inverse", "out", (torch.diag(torch.tensor([1.0, 0.0])),), note=" singular")
    yield Case("cholesky", "out", (indefinite,), note=" indefinite")
    yield Case("_linalg_eigh", "eigenvalues", (holed,), note=" NaN")
    yield Case("_linalg_eigh", "eigenvalues", (torch.full((1, 1), INF),), note=" infinite")
    yield Case("_linalg_eigh", "eigenvalues", (torch.full((3, 3), NAN),), note=" NaN")
    yield Case("_linalg_svd", "U", (holed,), note=" NaN")
    for op, overload in [
        ("linalg_inv_ex", "inverse"),
        ("_linalg_det", "result"),
        ("linalg_cholesky_ex", "L"),
        ("_linalg_eigh", "eigenvalues"),
        ("linalg_matrix_exp", "out"),
    ]:
        yield Case(op, overload, (wide,), note=" not square")
        yield Case(op, overload, (values((3,)),), note=" no matrix")
        yield Case(op, overload, (values((3, 3), torch.int32),), note=" integers")
        if op != "linalg_matrix_exp":
            yield Case(op, overload, (values((3, 3), torch.float16),), note=" half")


def systems() -> Iterator[Case]:
    """Solutions of systems, from the left and from the right, of batches that broadcast."""
    for dtype in PRECISE:
        a = regular((2, 4, 4), dtype)
        lu, pivots, _ = aten.linalg_lu_factor_ex(a)
        upper = torch.triu(a.flip(-2))
        for b, left in [
            (values((2, 4, 3), dtype), True),
            (values((4, 3), dtype), True),
            (values((3, 1, 4, 2), dtype), True),
            (values((2, 3, 4), dtype), False),
            (values((2, 4, 0), dtype), True),
        ]:
            yield Case("_linalg_solve_ex", "result", (a, b), {"left": left}, outputs=4 if left else 1)
            for unit in [False, True]:
                yield Case(
                    "linalg_solve_triangular",
                    "out",
                    (upper, b),
                    {"upper": True, "left": left, "unitriangular": unit},
                )
                yield Case(
                    "linalg_solve_triangular",
                    "out",
                    (upper.mT, b),
                    {"upper": False, "left": left, "unitriangular": unit},
                )
            if left:
                for transposed in [False, True]:
                    yield Case("triangular_solve", "X", (b, upper, True, transposed, False))
                yield Case("cholesky_solve", "out", (b, aten.cholesky(definite((2, 4, 4), dtype)), False))
                yield Case(
                    "cholesky_solve", "out", (b, aten.cholesky(definite((2, 4, 4), dtype), True), True)
                )
            if b.dim() == 3:
                for adjoint in [False, True]:
                    yield Case("linalg_lu_solve", "out", (lu, pivots, b), {"left": left, "adjoint": adjoint})
        yield Case("_linalg_solve_ex", "result", (a, values((2, 4), dtype)))
        yield Case("_linalg_solve_ex", "result", (a, values((4,), dtype)))
        yield Case("_linalg_solve_ex", "result", (a, values((2, 5, 3), dtype)), note=" misfit")
        for is_upper in [False, True]:
            yield Case(
                "cholesky_inverse", "out", (aten.cholesky(definite((2, 4, 4), dtype), is_upper), is_upper)
            )
        packed, tau = aten.geqrf(values((2, 5, 3), dtype))
        yield Case("linalg_householder_product", "out", (packed, tau))
        yield Case("linalg_householder_product", "out", (packed, tau[:, :2]))
        for transposed in [False, True]:
            yield Case("ormqr", "out", (packed, tau, values((2, 5, 4), dtype), True, transposed))
            yield Case("ormqr", "out", (packed, tau, values((2, 4, 5), dtype), False, transposed))


def spectra() -> Iterator[Case]:
    """Eigenvalues and singular values, which unlike their vectors are unique."""
    for dtype in PRECISE:
        for shape in [(4, 4), (2, 7, 7), (1, 1), (0, 0), (0, 3, 3)]:
            for uplo in ["L", "U"]:
                yield Case("_linalg_eigh", "eigenvalues", (values(shape, dtype), uplo), outputs=1)
            yield Case("_linalg_eigh", "eigenvalues", (values(shape, dtype), "L", False))
        for shape in [(4, 4), (2, 7, 3), (3, 6), (0, 3), (3, 0)]:
            yield Case("_linalg_svd", "U", (values(shape, dtype), False, False))
    yield Case("_linalg_eigh", "eigenvalues", (values((3, 3)), "X"), note=" no such triangle")


def every_matrix() -> Iterator[Case]:
    """The whole of this file."""
    yield from factorizations()
    yield from systems()
    yield from spectra()
