"""Every case of the operator table: the reference kernels against eager PyTorch, results and refusals."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator

import pytest
import torch

import pteron
from ops.operator_case import OperatorCase
from ops.operator_cases import every_case
from ops.reference_process import KernelRefused, ReferenceProcess
from ops.runtime_call import is_storable, run_in_runtime

# Kernels compute in the same precision as eager PyTorch, with functions and orders of summation of their own.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 3e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
CASES = every_case()


@pytest.fixture(scope="module")
def reference() -> Iterator[ReferenceProcess]:
    """The process that runs reference kernels."""
    process = ReferenceProcess()
    yield process
    process.close()


def check_close(got: torch.Tensor, expected: torch.Tensor, place: str) -> None:
    """Equal dtype and shape; equal values, floats within what their precision allows."""
    assert got.dtype == expected.dtype, place
    assert got.shape == expected.shape, place
    tolerance = TOLERANCE.get(expected.dtype, 0.0)
    finite = expected[torch.isfinite(expected)] if expected.is_floating_point() else expected
    largest = float(finite.abs().max()) if finite.numel() and expected.is_floating_point() else 0.0
    torch.testing.assert_close(
        got,
        expected,
        rtol=tolerance,
        atol=tolerance * min(1.0, largest),
        equal_nan=True,
        msg=lambda text: f"{place}: {text}",
    )


def expectation(case: OperatorCase) -> list[torch.Tensor] | None:
    """What eager PyTorch gives, or None when it refuses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return case.expected()
        except (RuntimeError, IndexError, NotImplementedError):
            return None


def some_outputs(case: OperatorCase) -> list[torch.Tensor]:
    """Outputs for a call that must be refused, whatever they are."""
    count = len(getattr(getattr(torch.ops.aten, case.operator), case.overload)._schema.returns)
    flat = [t for a in case.args for t in (a if isinstance(a, list) else [a])]
    first = next(t for t in flat if isinstance(t, torch.Tensor))
    return [torch.zeros(first.shape, dtype=first.dtype) for _ in range(count)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_reference_kernel_agrees_with_eager(case: OperatorCase, reference: ReferenceProcess) -> None:
    expected = expectation(case)
    if expected is None:
        with pytest.raises(KernelRefused):
            reference.run(case, some_outputs(case))
        return
    got = reference.run(case, case.room(expected))
    for i, (g, e) in enumerate(list(zip(got, expected, strict=True))[: case.outputs]):
        check_close(g, e, f"output {i}")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_runtime_agrees_with_eager(case: OperatorCase) -> None:
    """The same through a program file: loader, step loop and the fast kernels where there are some."""
    expected = expectation(case)
    if expected is None and case.is_taken_by_engine:
        pytest.skip("a fast kernel takes what eager refuses")
    if expected is None:
        with pytest.raises(pteron.PteronError):
            run_in_runtime(case, some_outputs(case))
        return
    if not is_storable(case, expected):
        pytest.skip("the program builder of these tests has no code for the dtype")
    got = run_in_runtime(case, case.room(expected))
    for i, (g, e) in enumerate(list(zip(got, expected, strict=True))[: case.outputs]):
        check_close(g, e, f"output {i}")


def test_the_table_covers_what_it_lists() -> None:
    counts = Counter(case.operator for case in CASES)
    assert len(counts) >= 150
    assert all(counts.values())
