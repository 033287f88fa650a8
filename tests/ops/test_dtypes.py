"""Every operator takes the element types that eager PyTorch takes, with equal results, but for a few."""

from __future__ import annotations

import pytest
import torch

from tests.ops.dtype_probe import probe_all, representatives
from tests.ops.operator_case import OperatorCase
from tests.ops.operator_cases import every_case
from tests.ops.test_reference_ops import check_outputs

_HALVES = {"float16", "bfloat16"}
_WHOLE = {"int8", "int16", "int32", "int64", "bool"}

# What a kernel computes though eager has none for the element type: it means what it means for the others.
TAKEN_HERE: dict[str, set[str]] = {
    # The lower bound of the case is negative, which eager refuses for unsigned numbers.
    "aten::hardtanh.out": {"uint8"},
    "aten::clamp.Tensor_out": {"bool"},
    "aten::addcmul.out": {"bool"},
    "aten::argmax.out": {"bool"},
    "aten::argmin.out": {"bool"},
    "aten::topk.values": {"bool"},
    "aten::avg_pool3d.out": _HALVES,
    "aten::avg_pool3d_backward.grad_input": _HALVES,
    "aten::_cdist_forward.out": _HALVES,
    "aten::_pdist_forward.out": _HALVES,
    "aten::_upsample_bilinear2d_aa.out": _HALVES,
    "aten::_upsample_bicubic2d_aa.out": _HALVES,
    "aten::special_zeta.out": _HALVES,
    **{f"aten::{mode}_pad{n}d.out": {"bool"} for mode in ("reflection", "replication") for n in (1, 2, 3)},
    **{f"aten::upsample_nearest{n}d.out": _WHOLE for n in (1, 2, 3)},
    **{f"aten::_upsample_nearest_exact{n}d.out": _WHOLE for n in (1, 2, 3)},
    "aten::upsample_nearest2d.vec_out": _WHOLE,
}

# What eager takes and no kernel here does.
REFUSED_HERE: dict[str, set[str]] = {
    # Eager interpolates bytes with weights in fixed point, which round unlike those of floats.
    "aten::upsample_bilinear2d.out": {"uint8"},
    "aten::upsample_bilinear2d.vec_out": {"uint8"},
    "aten::upsample_bicubic2d.out": {"uint8"},
    "aten::_upsample_bilinear2d_aa.out": {"uint8"},
    "aten::_upsample_bicubic2d_aa.out": {"uint8"},
    # Outside of training eager copies any numbers; what is dropped and scaled is a float.
    "aten::native_dropout.out": {*_WHOLE, "uint8"},
    # Eager copies any numbers apart; factors of matrices are float32 or float64.
    "aten::lu_unpack.out": {*_HALVES, *_WHOLE, "uint8"},
}

# Results that are not compared: eager's Bessel functions are off by up to 1e-9 in float64 (unit tests of the
# kernels hold them to the defining integral).
IMPRECISE_IN_EAGER = {f"aten::special_bessel_{kind}.out": {"float64"} for kind in ("j0", "j1", "y0", "y1")}

REPRESENTATIVES = representatives(every_case())


@pytest.mark.parametrize("case", REPRESENTATIVES, ids=lambda case: case.name)
def test_element_types_are_those_of_eager(case: OperatorCase) -> None:
    differences: dict[str, set[str]] = {"refused here": set(), "refused by eager": set()}
    for probe in probe_all(case):
        dtype = str(probe.dtype).removeprefix("torch.")
        if probe.difference is not None:
            differences[probe.difference].add(dtype)
        elif dtype in IMPRECISE_IN_EAGER.get(case.name, set()):
            continue
        elif probe.expected is not None and probe.got is not None:
            check_outputs(probe.case, probe.got, probe.expected)
    assert differences["refused here"] == REFUSED_HERE.get(case.name, set())
    assert differences["refused by eager"] == TAKEN_HERE.get(case.name, set())


def test_most_operators_are_probed() -> None:
    assert len(REPRESENTATIVES) >= 280
    names = {case.name for case in REPRESENTATIVES}
    assert names >= TAKEN_HERE.keys() | REFUSED_HERE.keys()
    assert torch.float32 in {
        case.args[0].dtype for case in REPRESENTATIVES if isinstance(case.args[0], torch.Tensor)
    }
