"""Every variant on which a kernel here and eager PyTorch may differ, with the reason. Nothing else may."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass

from tests.ops.op_db.judging import Outcome


@dataclass(frozen=True)
class Known:
    """Variants of `operator` whose note and detail match may have this outcome."""

    operator: str
    outcome: Outcome
    reason: str
    note: str = "*"
    detail: str = "*"
    dtype: str = "*"


_OVERFLOW = (
    "numbers near the largest float: whether a sum or a square of them overflows, and whether infinities "
    "of both signs meet, depends on the order of summation"
)
_INFINITE_MEAN = (
    "the mean of infinities: eager subtracts them while it runs over the numbers, which gives NaN; the sum "
    "here stays infinite"
)
_UNCHECKED = "eager does not look at this argument, or reads past the end of it; a program's call is checked"
_NOTHING = "of a tensor without elements eager looks at no setting"

KNOWN: list[Known] = [
    *(
        Known(operator, Outcome.DIFFERS, _OVERFLOW, note=note)
        for operator in (
            "aten.*mm.default",
            "aten.mv.default",
            "aten.dot.default",
            "aten.linear.default",
            "aten.*convolution.default",
            "aten.addcmul.default",
            "aten.*layer_norm.default",
            "aten.native_group_norm.default",
            "aten.*scaled_dot_product*",
            "aten.*_norm_legit*",
            "aten.*var*",
            "aten.*std*",
        )
        for note in ("all *e+38*", "all 65504.0*", "all -65504.0*", "edge values*")
    ),
    *(
        Known(operator, Outcome.DIFFERS, _INFINITE_MEAN, note=note, detail="output 1:*")
        for operator in ("aten.var_mean*", "aten.native_layer_norm.default", "aten.native_group_norm.default")
        for note in ("all *inf*", "edge values*")
    ),
    *(
        Known(operator, Outcome.REFUSED, _UNCHECKED)
        for operator in ("aten._native_batch_norm_legit_no_training.default", "aten._pdist_forward.default")
    ),
    Known("aten.native_group_norm.default", Outcome.REFUSED, _UNCHECKED, note="rank *"),
    Known("aten._fft_*", Outcome.REFUSED, _UNCHECKED, detail="*dimension out of range*"),
    Known(
        "aten.index_reduce.default",
        Outcome.TAKEN,
        "eager has no form of it without the tensor's own elements for bool",
        note="include_self=False",
        dtype="bool",
    ),
    Known("aten.grid_sampler_2d.default", Outcome.REFUSED, _UNCHECKED, note="*_mode=*"),
    Known("aten.grid_sampler_2d.default", Outcome.REFUSED, _NOTHING, note="dimension * empty*"),
    Known("aten.cholesky.default", Outcome.REFUSED, _NOTHING),
    Known(
        "aten._grouped_mm.default",
        Outcome.REFUSED,
        "eager takes groups that end behind the last row",
        detail="*an offset is no end of a group*",
    ),
    *(
        Known(operator, Outcome.REFUSED, _NOTHING, note="no elements*")
        for operator in ("aten.roll.default", "aten.cummax.default", "aten.cummin.default")
    ),
    Known(
        "aten.*embedding_bag*",
        Outcome.REFUSED,
        "where a bag ends that the last offset cuts off depends on mode and padding in eager",
        note="include_last_offset=True",
        detail="*the last offset does not end the indices*",
    ),
    Known(
        "aten.*embedding_bag*",
        Outcome.DIFFERS,
        "eager reads indices that do not lie side by side as if they did",
        note="* of the second",
    ),
    Known(
        "aten.pixel_unshuffle.default",
        Outcome.DIFFERS,
        "of an empty image eager returns a copy, not the shape that it gives all others",
        detail="*shape*",
    ),
    Known(
        "aten.topk.default",
        Outcome.DIFFERS,
        "without sorting the order of the largest is free; here they are sorted",
        note="sorted=False",
    ),
    *(
        Known(
            f"aten.special_bessel_{kind}.default",
            Outcome.DIFFERS,
            "the phase of an argument near the largest float: eager reduces it in float32",
            note=note,
        )
        for kind in ("j0", "j1", "y0", "y1")
        for note in ("all *e+38*", "all *2147483*", "edge values*")
    ),
    Known(
        "aten.*median.dim",
        Outcome.DIFFERS,
        "eager reorders the elements in place where several of them are one place in memory",
        note="expanded*",
    ),
    Known(
        "aten.*median.default",
        Outcome.REFUSED,
        "the median of no integers: eager gives the smallest of them, which is none of the elements",
        dtype="int*",
    ),
    Known(
        "aten.convolution.default",
        Outcome.TAKEN,
        "integers: eager has no dilated convolution of them",
        note="dilation*",
        dtype="int*",
    ),
    *(
        Known(
            f"aten.upsample_{kind}.default",
            Outcome.DIFFERS,
            "the weight of a neighbour is zero or what rounding left of it: where eager reads depends on "
            "the dtype and the processor, and only an infinite neighbour shows it",
            note="all *inf*",
            dtype="float*",
        )
        for kind in ("linear1d", "bilinear2d", "bicubic2d", "trilinear3d")
    ),
    Known(
        "aten.special_zeta.default",
        Outcome.DIFFERS,
        "of a large argument the terms vanish; eager multiplies a zero by an infinity on the way",
        detail="*expected nan",
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
]


def reason_for(operator: str, dtype: str, outcome: Outcome, note: str, detail: str) -> str | None:
    """Why a variant may have this outcome, or None when it must not."""
    for known in KNOWN:
        if (
            known.outcome is outcome
            and fnmatch.fnmatchcase(operator, known.operator)
            and fnmatch.fnmatchcase(dtype, known.dtype)
            and fnmatch.fnmatchcase(note, known.note)
            and fnmatch.fnmatchcase(detail, known.detail)
        ):
            return known.reason
    return None
