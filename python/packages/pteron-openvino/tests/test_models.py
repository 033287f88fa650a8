"""Fifteen models, whole and in parts, against eager PyTorch; what stays has a reason."""

from __future__ import annotations

import pytest

import pteron
from pteron_openvino import BACKEND, OpenvinoPartitioner, register
from tests.support.package_models import NAMES, How, built, differences, lowered

#: Relative to the largest number of a result.
TOLERANCE = 3e-5
#: The only reason that these models give: masks and positions are counted in int64.
REASON = "OpenvinoPartitioner: OpenVINO computes int64 in 32 bits"
#: Operators that stay with the runtime, where not none.
STAYS = {
    "ViT": {"aten.arange.start_step", "aten.unsqueeze_copy.default", "aten.add.Tensor", "aten.ge.Scalar"},
    "BERT": {
        *("aten.arange.start_step", "aten.unsqueeze_copy.default", "aten.add.Tensor", "aten.ge.Scalar"),
        *("sym_size.int", "aten.slice_copy.Tensor", "aten.gather.default", "aten.expand_copy.default"),
        "dim_order_ops._to_dim_order_copy.default",
    },
    "ResNet": set(),
    "SegFormer": set(),
}


@pytest.mark.parametrize("how", ["whole", "in parts"])
@pytest.mark.parametrize("name", NAMES)
def test_results_are_those_of_eager_pytorch(name: str, how: How) -> None:
    model, runtime = built(name), pteron.Runtime()
    register(runtime)
    manager = lowered(model, how, BACKEND, OpenvinoPartitioner)
    program = pteron.load(manager.to_executorch().buffer, runtime=runtime)
    for method in model.methods:
        report = manager.delegation_report()[method]
        assert program.backends(method) == (BACKEND,)
        if how == "whole":
            assert len(report.delegates) == 1
            assert not report.remaining
        taken = sum(sum(delegate.operators.values()) for delegate in report.delegates)
        assert taken > 2 * sum(report.remaining.values())
    assert max(differences(program, model)) < TOLERANCE


@pytest.mark.parametrize("name", STAYS)
def test_what_stays_has_a_reason(name: str) -> None:
    report = lowered(built(name), "in parts", BACKEND, OpenvinoPartitioner).delegation_report()
    assert set(report["forward"].remaining) == STAYS[name]
    assert (REASON in str(report)) == bool(STAYS[name])
