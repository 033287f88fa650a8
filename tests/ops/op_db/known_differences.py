"""Every recorded call on which a kernel here and eager PyTorch may differ, with the reason. Nothing else may.

An entry is looked up by operator (`*` at its end stands for any rest) and the outcome; `dtype` narrows it to
calls whose first tensor has that dtype.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass

from tests.ops.op_db.judging import Outcome


@dataclass(frozen=True)
class Known:
    """Calls of `operator` may have this outcome."""

    operator: str
    outcome: Outcome
    reason: str
    dtype: str = "*"
    detail: str = "*"


_COMPLEX_MATRICES = "factors of complex matrices: the factorisations are those of real ones"
_COMPLEX_REST = (
    "complex numbers: the kernel moves or adds real ones; no model that was looked at needs others"
)

KNOWN: list[Known] = [
    Known(
        "aten.*upsample_bi*",
        Outcome.REFUSED,
        "resampling of uint8 images: PyTorch computes it with weights of 16 bits, which no kernel here "
        "does; models resample floats",
        dtype="uint8",
    ),
    Known(
        "aten.gather.default",
        Outcome.REFUSED,
        "an index without elements may have any dtype in eager PyTorch, which looks at it only if there are "
        "some; int64 and int32 are taken here",
        detail="*positions must be integers*",
    ),
    Known(
        "aten._linalg_eigh.default",
        Outcome.DIFFERS,
        "an eigenvector's sign is free; test_factorizations.py puts the matrix together again",
        detail="output 1:*",
    ),
    Known(
        "aten._linalg_svd.default",
        Outcome.DIFFERS,
        "the signs of singular vectors are free; test_factorizations.py puts the matrix together again",
        detail="output [02]:*",
    ),
    Known(
        "aten.polygamma.default",
        Outcome.DIFFERS,
        "integers from 0 down are poles: eager's large numbers there come from rounding of a sine, and are "
        "others in float32 and in float64",
        dtype="int*",
    ),
    Known(
        "aten.polygamma.default",
        Outcome.DIFFERS,
        "the trigamma function in float64: eager cuts its series off after ten digits; here it has fifteen, "
        "which the kernel's tests hold it to",
        dtype="float64",
        detail="output 0: *",
    ),
    Known(
        "aten.special_bessel_[jy][01].default",
        Outcome.DIFFERS,
        "float64 of five and more: eager is right to nine digits there, these to fifteen, which the kernel's "
        "tests compare with the functions' integrals",
        dtype="float64",
    ),
    *(
        Known(operator, Outcome.REFUSED, _COMPLEX_MATRICES, dtype="complex64")
        for operator in (
            "aten._linalg_det.default",
            "aten._linalg_eigh.default",
            "aten._linalg_slogdet.default",
            "aten._linalg_solve_ex.default",
            "aten._linalg_svd.default",
            "aten.cholesky*",
            "aten.geqrf.default",
            "aten.linalg_cholesky_ex.default",
            "aten.linalg_householder_product.default",
            "aten.linalg_inv_ex.default",
            "aten.linalg_lu*",
            "aten.linalg_matrix_exp.default",
            "aten.linalg_qr.default",
            "aten.linalg_solve_triangular.default",
            "aten.lu_unpack.default",
            "aten.ormqr.default",
            "aten.triangular_solve.default",
        )
    ),
    *(
        Known(operator, Outcome.REFUSED, _COMPLEX_REST, dtype="complex64")
        for operator in ("aten.logsumexp.default",)
    ),
]


def reason_for(operator: str, dtype: str, outcome: Outcome, detail: str) -> str | None:
    """Why a call may have this outcome, or None when it must not."""
    for known in KNOWN:
        if (
            known.outcome is outcome
            and fnmatch.fnmatchcase(operator, known.operator)
            and fnmatch.fnmatchcase(dtype, known.dtype)
            and fnmatch.fnmatchcase(detail, known.detail)
        ):
            return known.reason
    return None
