"""Fifteen models, whole and in parts, against eager PyTorch; what stays has a reason."""

from __future__ import annotations

import pytest
import torch

import pteron
from pteron.exir import to_edge_transform_and_lower
from pteron_onnxruntime import BACKEND, OnnxRuntimePartitioner, register
from tests.support.package_models import NAMES, How, built, differences, lowered

#: Relative to the largest number of a result.
TOLERANCE = 3e-5


@pytest.mark.parametrize("how", ["whole", "in parts"])
@pytest.mark.parametrize("name", NAMES)
def test_results_are_those_of_eager_pytorch(name: str, how: How) -> None:
    model, runtime = built(name), pteron.Runtime()
    register(runtime)
    manager = lowered(model, how, BACKEND, OnnxRuntimePartitioner)
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


class Mixed(torch.nn.Module):
    """What stays, in the middle of what goes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.log1p(torch.relu(x @ x))
        return torch.cumprod(y, 0) @ x + x.to(torch.int64)


def test_what_stays_has_a_reason() -> None:
    captured = torch.export.export(Mixed(), (torch.randn(3, 3),))
    manager = to_edge_transform_and_lower(
        captured, partitioner=[OnnxRuntimePartitioner(left=["aten.relu.default"])]
    )
    report = manager.delegation_report()
    reasons = {
        "aten.log1p.default": "ONNX: no converter to ONNX",
        "aten.cumprod.default": "ONNX: no converter to ONNX",
        "aten.relu.default": "the partitioner was told to leave this operator",
        "dim_order_ops._to_dim_order_copy.default": "ONNX does not define torch.float32 to torch.int64",
    }
    assert set(report["forward"].remaining) == set(reasons)
    for line in str(report).splitlines():
        name = line.split(" ")[0]
        assert reasons.get(name, "") in line


def test_element_types_without_kernel_stay() -> None:
    captured = torch.export.export(Mixed(), (torch.randn(3, 3, dtype=torch.bfloat16),))
    report = to_edge_transform_and_lower(captured, partitioner=[OnnxRuntimePartitioner()]).delegation_report()
    assert report["forward"].remaining["aten.mm.default"] == 2
    assert "NOT_IMPLEMENTED : Could not find an implementation for MatMul" in str(report)
