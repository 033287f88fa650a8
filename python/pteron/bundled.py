"""Test cases that travel with a program, and what a run of one gave."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pteron._native import Program

__all__ = ["CaseResult", "OutputResult", "TestCase", "compare", "test_case", "verify"]


@dataclass(frozen=True)
class TestCase:
    """One call of a method, flat: arrays and numbers. `expected_outputs` is empty where a case is there to be
    run, not compared.
    """

    __test__ = False  # no test class, whatever pytest thinks of the name

    inputs: list[Any]
    expected_outputs: list[Any]


@dataclass(frozen=True)
class OutputResult:
    """How one output compares.

    `mismatches`: number of elements out of tolerance. `largest_difference`: largest absolute difference of
    two finite elements, 0.0 without any. `problem`: what else is wrong, a dtype or a shape, or None.
    """

    mismatches: int
    largest_difference: float
    problem: str | None = None

    @property
    def passed(self) -> bool:
        """Whether the output is as expected."""
        return self.mismatches == 0 and self.problem is None


@dataclass(frozen=True)
class CaseResult:
    """How the outputs of a test case compare with what it expects; true where all of them agree.

    `values`: the outputs themselves.
    """

    method: str
    case: int
    outputs: tuple[OutputResult, ...]
    values: tuple[Any, ...] = field(repr=False)

    @property
    def passed(self) -> bool:
        """Whether all outputs are as expected."""
        return all(output.passed for output in self.outputs)

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        lines = [f"method {self.method!r}, case {self.case}: {'passed' if self.passed else 'FAILED'}"]
        for index, output in enumerate(self.outputs):
            text = output.problem or (
                f"{output.mismatches} elements out of tolerance, "
                f"largest difference {output.largest_difference:.3g}"
            )
            lines.append(f"  output {index}: {text}")
        return "\n".join(lines)


def verify(program: Program, method: str, case: int, rtol: float, atol: float) -> CaseResult:
    """Run test case `case` of `method` in a new session and compare, see `Program.verify`."""
    chosen = test_case(program, method, case)
    if not chosen.expected_outputs:
        raise ValueError(f"case {case} of method {method!r} has no expected outputs to compare with")
    outputs = program.load_method(method).execute(chosen.inputs)
    return compare(method, case, chosen, outputs, rtol, atol)


def test_case(program: Program, method: str, case: int) -> TestCase:
    """Test case `case` of `method`; ValueError where there is none."""
    cases = program.test_cases(method)
    if not 0 <= case < len(cases):
        raise ValueError(f"method {method!r} has {len(cases)} test cases; there is no case {case}")
    return cases[case]


test_case.__test__ = False  # type: ignore[attr-defined]  # no test, whatever pytest thinks of the name


def compare(
    method: str, case: int, chosen: TestCase, outputs: list[Any], rtol: float, atol: float
) -> CaseResult:
    """Compare the outputs of a call with what the case expects; ValueError where their numbers differ."""
    if len(outputs) != len(chosen.expected_outputs):
        raise ValueError(
            f"case {case} of method {method!r} expects {len(chosen.expected_outputs)} outputs, the method "
            f"gives {len(outputs)}"
        )
    pairs = zip(outputs, chosen.expected_outputs, strict=True)
    compared = tuple(_compare(got, want, rtol, atol) for got, want in pairs)
    return CaseResult(method, case, compared, tuple(outputs))


def _compare(got: Any, want: Any, rtol: float, atol: float) -> OutputResult:
    if _is_tensor(got) != _is_tensor(want):
        return OutputResult(0, 0.0, f"expected {type(want).__name__}, got {type(got).__name__}")
    if _is_tensor(got):
        if str(got.dtype) != str(want.dtype):
            return OutputResult(0, 0.0, f"expected dtype {want.dtype}, got {got.dtype}")
        if tuple(got.shape) != tuple(want.shape):
            return OutputResult(0, 0.0, f"expected shape {tuple(want.shape)}, got {tuple(got.shape)}")
    found, expected = _numbers(got), _numbers(want)
    with np.errstate(invalid="ignore", over="ignore"):
        if rtol == 0 and atol == 0 and isinstance(want, np.ndarray) and want.dtype.kind in "iu":
            equal = got == want  # float64 does not tell all 64-bit integers apart
        else:
            equal = np.isclose(found, expected, rtol=rtol, atol=atol, equal_nan=True)
        difference = np.abs(found - expected)
    finite = difference[np.isfinite(difference)]
    return OutputResult(int(np.count_nonzero(~equal)), float(finite.max()) if finite.size else 0.0)


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "dtype")


def _numbers(value: Any) -> Any:
    """The elements as numbers that NumPy can compare."""
    if _is_tensor(value) and not isinstance(value, np.ndarray):
        return _without_numpy_dtype(value)
    array = np.asarray(value)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _without_numpy_dtype(tensor: Any) -> Any:
    """The elements of a `pteron.Tensor` whose dtype NumPy has not (bfloat16, float8), in memory order."""
    raw = tensor.tobytes()
    if tensor.dtype == "bfloat16":
        return (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    # Eight bits that nothing here can read as a number: compared as they are.
    return np.frombuffer(raw, np.uint8).astype(np.int64)
