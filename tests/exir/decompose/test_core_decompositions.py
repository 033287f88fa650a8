"""Operators that PyTorch's decompositions leave as primitives, or fail on."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from torch.export import ExportedProgram, export

import pteron
from pteron.backends.demo.op_partitioners import AddMulPartitionerDemo
from pteron.errors import ExportError, UnsupportedProgramError, VerificationError
from pteron.exir import EdgeProgramManager, to_edge, to_edge_transform_and_lower
from tests.exir.small_models import PORTABLE, edge_of, random, targets


def _all_kinds(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
    square = x[:, :3]
    return (
        torch.cumprod(x, 1),
        torch.cumprod(i, 0),
        *torch.std_mean(x, 1),
        *torch.var_mean(x, correction=0),
        torch.exp2(x),
        torch.hypot(x, y),
        torch.logaddexp2(x, y),
        torch.vander(x[0]),
        torch.round(x, decimals=2),
        i << 2,
        i >> (i % 3),
        torch.bitwise_left_shift(i, i % 3),
        torch.diagonal_scatter(x, y[0, :3], 1),
        torch.diagonal_scatter(x, y[0, :2], -1),
        torch.diagonal_scatter(x[None], y[:1, :3], 0, 2, 1),
        torch.addbmm(square, x[None, :, :3], y[None, :, :3], beta=0.5, alpha=2.0),
        torch.addbmm(square * torch.nan, x[None, :, :3], y[None, :, :3], beta=0),
        torch.empty_like(x).fill_(2.0),
        torch.empty_permuted((2, 3), (1, 0)).fill_(1.0),
    )


@pytest.fixture(scope="module")
def inputs() -> tuple[torch.Tensor, ...]:
    return random(3, 4), random(3, 4), torch.arange(1, 7).reshape(2, 3)


@pytest.fixture(scope="module")
def manager(inputs: tuple[torch.Tensor, ...]) -> EdgeProgramManager:
    return edge_of(_all_kinds, *inputs)


def test_no_primitive_is_left(manager: EdgeProgramManager) -> None:
    names = targets(manager.exported_program())
    assert len(names) > 20
    assert not [name for name in names if name.startswith("prims.")]


def test_what_has_a_kernel_stays_whole_and_runs(
    manager: EdgeProgramManager, inputs: tuple[torch.Tensor, ...]
) -> None:
    names = targets(manager.exported_program())
    for kept in ("cumprod.default", "var_mean.correction", "hypot.default", "exp2.default"):
        assert f"aten.{kept}" in names
    run = pteron.load(manager.to_executorch().buffer).load_method("forward")
    for got, expected in zip(run(*(each.numpy() for each in inputs)), _all_kinds(*inputs), strict=True):
        np.testing.assert_allclose(got, expected.numpy(), rtol=1e-5, atol=1e-6)


def test_a_target_without_the_kernels_gets_them_decomposed(inputs: tuple[torch.Tensor, ...]) -> None:
    def kept(x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (torch.cumprod(x, 1), torch.cumprod(i, 0), *torch.var_mean(x, 1))

    x, _, i = inputs
    emitted = edge_of(kept, x, i).to_executorch(PORTABLE)
    run = pteron.load(emitted.buffer).load_method("forward")
    for got, expected in zip(run(x.numpy(), i.numpy()), kept(x, i), strict=True):
        np.testing.assert_allclose(got, expected.numpy(), rtol=1e-5, atol=1e-6)


def test_what_has_no_kernel_is_listed_with_its_source_line(inputs: tuple[torch.Tensor, ...]) -> None:
    def without(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.special.spherical_bessel_j0(x), torch.special.log_ndtr(y)

    edge = edge_of(without, *inputs)
    with pytest.raises(UnsupportedProgramError) as caught:
        edge.to_executorch()
    text = str(caught.value)
    for missing in ("special_spherical_bessel_j0.out", "special_erfcx.out"):
        assert re.search(rf"no kernel aten::{missing};.*\n.*small_models\.py:", text), missing
    assert "prims" not in text


def test_what_has_no_decomposition_left_is_refused_with_its_source_line() -> None:
    with pytest.raises(VerificationError, match=r"aten\.histogram\.bin_ct is not a core ATen") as caught:
        edge_of(lambda x: torch.histogram(x, bins=4)[0], random(3))
    assert "small_models.py:" in (caught.value.source_line or "")


class AddsProduct(torch.nn.Module):
    def forward(self, a: torch.Tensor, x: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.addmv(a, x, v)


def test_a_failure_of_pytorch_names_the_method_and_keeps_its_cause() -> None:
    shared = random(4)
    # PyTorch fails on example inputs that are views of the same memory.
    program = export(AddsProduct(), (shared[:3], random(3, 4), shared))
    for lower in (to_edge, _lower_with_a_partitioner):
        with pytest.raises(ExportError, match=r"method 'step'.*PyTorch fails to decompose.*strict=True") as e:
            lower({"step": program})
        assert e.value.method == "step"
        assert isinstance(e.value.__cause__, AttributeError)


def _lower_with_a_partitioner(programs: dict[str, ExportedProgram]) -> EdgeProgramManager:
    return to_edge_transform_and_lower(programs, partitioner=AddMulPartitionerDemo())
