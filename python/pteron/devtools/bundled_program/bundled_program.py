"""A program together with test cases."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from pteron.devtools.bundled_program.method_test_suite import ConfigValue, MethodTestSuite
from pteron.errors import CaseMismatchError
from pteron.exir.edge.scalar_type import scalar_type_of
from pteron.exir.executorch_program_manager import ExecutorchProgramManager
from pteron.exir.schema import Bool, Double, ExecutionPlan, Int, Tensor


class BundledProgram:
    """A program and the test cases of its methods, ready to be written.

    `executorch_program`: what `to_executorch` gave; or `pte_file_path`: a program file. Exactly one of them
    is given. `method_test_suites`: the cases; they are kept sorted by method name.
    CaseMismatchError where a case does not fit its method, which is known for a manager only.
    """

    def __init__(
        self,
        executorch_program: ExecutorchProgramManager | None,
        method_test_suites: Sequence[MethodTestSuite],
        pte_file_path: str | os.PathLike[str] | None = None,
    ) -> None:
        if (executorch_program is None) == (pte_file_path is None):
            raise CaseMismatchError(
                "BundledProgram: expected exactly one of executorch_program and pte_file_path",
                got="both" if pte_file_path is not None else "neither",
            )
        self.executorch_program = executorch_program
        self.pte_file_path = pte_file_path
        self.method_test_suites = sorted(method_test_suites, key=lambda suite: suite.method_name)
        names = [suite.method_name for suite in self.method_test_suites]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise CaseMismatchError(f"BundledProgram: two test suites are for method {twice!r}", method=twice)
        if executorch_program is not None:
            plans = {plan.name: plan for plan in executorch_program.executorch_program.execution_plan}
            for suite in self.method_test_suites:
                _check_suite(suite, plans)

    def program_bytes(self) -> bytes:
        """The bytes of the program file."""
        if self.executorch_program is not None:
            return self.executorch_program.buffer
        assert self.pte_file_path is not None
        return Path(self.pte_file_path).read_bytes()


_KINDS: dict[type[Any], type[Any]] = {Int: int, Bool: bool, Double: float}


def _check_suite(suite: MethodTestSuite, plans: dict[str, ExecutionPlan]) -> None:
    plan = plans.get(suite.method_name)
    if plan is None:
        raise CaseMismatchError(
            f"BundledProgram: the program has no method {suite.method_name!r}",
            method=suite.method_name,
            expected=f"one of {sorted(plans)}",
            got=suite.method_name,
        )
    for index, case in enumerate(suite.test_cases):
        place = f"method {suite.method_name!r}, test case {index}"
        _check_values(case.inputs, plan, plan.inputs, f"{place}, input")
        if case.expected_outputs:
            _check_values(case.expected_outputs, plan, plan.outputs, f"{place}, expected output")


def _check_values(
    values: Sequence[ConfigValue], plan: ExecutionPlan, indices: Sequence[int], place: str
) -> None:
    if len(values) != len(indices):
        raise CaseMismatchError(
            f"BundledProgram: {place}s: expected {len(indices)} flat values, got {len(values)}",
            method=plan.name,
            expected=str(len(indices)),
            got=str(len(values)),
        )
    for position, (value, index) in enumerate(zip(values, indices, strict=True)):
        wanted = _describe(plan.values[index].val)
        got = _describe(value)
        if wanted != got:
            raise CaseMismatchError(
                f"BundledProgram: {place} {position} has another type than in the program",
                method=plan.name,
                expected=wanted,
                got=got,
            )


def _describe(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of dtype code {scalar_type_of(value.dtype)}"
    if isinstance(value, Tensor):
        return f"a tensor of dtype code {value.scalar_type}"
    return _KINDS.get(type(value), type(value)).__name__
