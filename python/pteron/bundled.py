"""Test cases that travel with a program, and what a run of one gave."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pteron.errors import InputError, PteronError

if TYPE_CHECKING:
    from pteron._native import Program

__all__ = ["CaseResult", "OutputResult", "TestCase", "compare", "test_case", "verification_failure", "verify"]


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

    `mismatches`: number of elements out of tolerance, where integers and booleans have none.
    `largest_difference`: largest absolute difference of two finite elements, 0.0 without any. `problem`: what
    else is wrong, a dtype or a shape, or None.
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
    """Run test case `case` of `method` in a new session and compare, see `Program.verify`.

    Floating-point and complex outputs are compared within `rtol` and `atol`; all others, integers and
    booleans, must be equal whatever the tolerances are: a token that is off by one is another token.
    """
    chosen = comparable_case(program, method, case)
    outputs = program.load_method(method).execute(chosen.inputs)
    return compare(method, case, chosen, outputs, rtol, atol)


def test_case(program: Program, method: str, case: int) -> TestCase:
    """Test case `case` of `method`; InputError, which is a ValueError, where there is none."""
    cases = program.test_cases(method)
    if not 0 <= case < len(cases):
        raise InputError(
            f"method {method!r} has {len(cases)} test cases; there is no case {case}",
            method=method,
            argument="case",
        )
    return cases[case]


test_case.__test__ = False  # type: ignore[attr-defined]  # no test, whatever pytest thinks of the name


def comparable_case(program: Program, method: str, case: int) -> TestCase:
    """As `test_case`; InputError also where the case expects nothing."""
    chosen = test_case(program, method, case)
    if not chosen.expected_outputs:
        raise InputError(
            f"case {case} of method {method!r} has no expected outputs to compare with",
            method=method,
            argument="case",
        )
    return chosen


def compare(
    method: str, case: int, chosen: TestCase, outputs: list[Any], rtol: float, atol: float
) -> CaseResult:
    """Compare the outputs of a call with what the case expects; InputError where their numbers differ."""
    if len(outputs) != len(chosen.expected_outputs):
        raise InputError(
            f"case {case} of method {method!r} expects {len(chosen.expected_outputs)} outputs, the method "
            f"gives {len(outputs)}",
            method=method,
            argument="case",
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
    found, expected = _elements(got), _elements(want)
    if found.dtype.kind not in "fc" and expected.dtype.kind not in "fc":
        return _compare_exactly(found, expected)
    with np.errstate(invalid="ignore", over="ignore"):
        equal = np.isclose(found, expected, rtol=rtol, atol=atol, equal_nan=True)
        difference = np.abs(found - expected)
    finite = difference[np.isfinite(difference)]
    return OutputResult(int(np.count_nonzero(~equal)), float(finite.max()) if finite.size else 0.0)


def _compare_exactly(found: Any, expected: Any) -> OutputResult:
    """Compare integers, booleans and what else has no tolerance."""
    mismatches = int(np.count_nonzero(found != expected))
    common = np.result_type(found, expected)
    if mismatches == 0 or common.kind not in "biu":
        return OutputResult(mismatches, 0.0)
    # Unsigned, the difference of any two integers of this width is exact; float64 does not tell all of the
    # 64-bit ones apart.
    unsigned = np.dtype(f"u{common.itemsize}")
    left, right = (array.astype(common).view(unsigned) for array in (found, expected))
    with np.errstate(over="ignore"):
        difference = np.where(found > expected, left - right, right - left)
    return OutputResult(mismatches, float(difference.max()))


def verification_failure(result: CaseResult) -> PteronError:
    """The error of outputs that are not as a case expects, for callers that want one."""
    text = str(result).replace("\n  ", "; ")
    return PteronError(f"Result verification failed: {text}", method=result.method)


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "dtype")


def _elements(value: Any) -> Any:
    """The elements as an array: floats as float64, complex numbers as complex128, others as they are."""
    if _is_tensor(value) and not isinstance(value, np.ndarray):
        return _without_numpy_dtype(value)
    array = np.asarray(value)
    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    # The dtypes that ml_dtypes adds to NumPy (bfloat16, float8) are floats of various kinds.
    is_float = array.dtype.kind == "f" or array.dtype.isbuiltin == 2
    return array.astype(np.float64) if is_float else array


def _without_numpy_dtype(tensor: Any) -> Any:
    """The elements of a `pteron.Tensor` whose dtype NumPy has not (bfloat16, float8), in memory order."""
    raw = tensor.tobytes()
    if tensor.dtype == "bfloat16":
        return (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if tensor.dtype == "complex32":
        return np.frombuffer(raw, np.float16).astype(np.float64).view(np.complex128)
    # Eight bits that nothing here can read as a number: compared as they are.
    return np.frombuffer(raw, np.uint8)
