"""Every case of the operator table: the reference kernels against eager PyTorch, results and refusals."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator

import pytest
import torch

import pteron
from tests.ops.operator_case import OperatorCase
from tests.ops.operator_cases import every_case
from tests.ops.reference_process import KernelRefused, ReferenceProcess
from tests.ops.runtime_call import run_in_runtime
from tests.ops.tolerance import check_close, describe_difference

CASES = every_case()
# What eager PyTorch rounds on the way, unlike 16-bit floats (wide_oracle.py); how depends on the processor.
_ROUNDED_BY_EAGER = (torch.float32, torch.complex64)


@pytest.fixture(scope="module")
def reference() -> Iterator[ReferenceProcess]:
    """The process that runs reference kernels."""
    process = ReferenceProcess()
    yield process
    process.close()


def check_outputs(case: OperatorCase, got: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    """`check_close` for every output that counts, and the signs of zeros where the case asks for them."""
    for i, (g, e) in enumerate(list(zip(got, expected, strict=True))[: case.outputs]):
        if describe_difference(g, e, case.name) is not None:
            exact = case.exact() if e.dtype in _ROUNDED_BY_EAGER else None
            check_close(g, e, f"output {i}", case.name, exact[i] if exact else None)
        if "signs" in case.note:
            zero = e == 0
            assert torch.equal(torch.signbit(g[zero]), torch.signbit(e[zero])), (
                f"sign of a zero in output {i}"
            )


def expectation(case: OperatorCase) -> list[torch.Tensor] | None:
    """What eager PyTorch gives, or None when it refuses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return case.expected()
        except (RuntimeError, IndexError, NotImplementedError, AssertionError, ValueError):
            return None


def some_outputs(case: OperatorCase) -> list[torch.Tensor]:
    """Outputs for a call that must be refused: those that the case names, or as the first argument is."""
    count = len(case.schema.returns)
    room = case.largest if isinstance(case.largest, list) else [case.largest] * count
    flat = [t for a in case.args for t in (a if isinstance(a, list) else [a])]
    first = next(t for t in flat if isinstance(t, torch.Tensor))
    return [torch.zeros(first.shape if s is None else s, dtype=first.dtype) for s in room]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_reference_kernel_agrees_with_eager(case: OperatorCase, reference: ReferenceProcess) -> None:
    expected = expectation(case)
    if expected is None:
        with pytest.raises(KernelRefused):
            reference.run(case, some_outputs(case))
        return
    got = reference.run(case, case.room(expected))
    check_outputs(case, got, expected)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_runtime_agrees_with_eager(case: OperatorCase) -> None:
    """The same through a program file: loader, step loop and the fast kernels where there are some."""
    expected = expectation(case)
    if expected is None:
        with pytest.raises(pteron.PteronError):
            run_in_runtime(case, some_outputs(case))
        return
    got = run_in_runtime(case, case.room(expected))
    check_outputs(case, got, expected)


def test_the_table_covers_what_it_lists() -> None:
    counts = Counter(case.operator for case in CASES)
    assert len(counts) >= 150
    assert all(counts.values())
