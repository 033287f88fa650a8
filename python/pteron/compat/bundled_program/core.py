"""`BundledProgram` with `serialize_to_schema`, and errors that ExecuTorch's callers expect."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch

from pteron.compat.bundled_program import schema
from pteron.devtools.bundled_program.bundled_program import BundledProgram as PteronBundledProgram
from pteron.devtools.bundled_program.method_test_suite import ConfigValue, MethodTestSuite
from pteron.devtools.bundled_program.serialize_bundled_program import bundled_tensor
from pteron.errors import ExportError
from pteron.exir.executorch_program_manager import ExecutorchProgramManager
from pteron.exir.schema import ScalarType

BUNDLED_PROGRAM_SCHEMA_VERSION = 2


class BundleError(ExportError, AssertionError):
    """A case that does not fit its method: an `ExportError`, and the assertion that ExecuTorch makes."""


class BundledProgram(PteronBundledProgram):
    """As in pteron, with the objects of the file. BundleError where a case does not fit its method."""

    def __init__(
        self,
        executorch_program: ExecutorchProgramManager | None,
        method_test_suites: Sequence[MethodTestSuite],
        pte_file_path: str | os.PathLike[str] | None = None,
    ) -> None:
        try:
            super().__init__(executorch_program, method_test_suites, pte_file_path)
        except ExportError as error:
            raise BundleError(
                str(error), method=error.method, expected=error.expected, got=error.got
            ) from error
        self._in_schema: schema.BundledProgram | None = None

    def serialize_to_schema(self) -> schema.BundledProgram:
        """The objects of the file; made once."""
        if self._in_schema is None:
            suites = [
                schema.BundledMethodTestSuite(
                    suite.method_name,
                    [
                        schema.BundledMethodTestCase(
                            [_value(each) for each in case.inputs],
                            [_value(each) for each in case.expected_outputs],
                        )
                        for case in suite.test_cases
                    ],
                )
                for suite in self.method_test_suites
            ]
            self._in_schema = schema.BundledProgram(
                BUNDLED_PROGRAM_SCHEMA_VERSION, suites, self.program_bytes()
            )
        return self._in_schema


def _value(value: ConfigValue) -> schema.Value:
    if isinstance(value, torch.Tensor):
        stored = bundled_tensor(value)
        kind = ScalarType(stored.scalar_type)
        return schema.Value(schema.Tensor(kind, stored.sizes, bytes(stored.data), stored.dim_order))
    if isinstance(value, bool):
        return schema.Value(schema.Bool(value))
    return schema.Value(schema.Int(value) if isinstance(value, int) else schema.Double(value))
