"""The exceptions that passes of others raise. Ours are `pteron.errors`; the pipeline raises those."""

from __future__ import annotations

from enum import Enum

from pteron import errors


class ExportErrorType(Enum):
    """What kind of mistake an `ExportError` reports."""

    INVALID_INPUT_TYPE = 1
    INVALID_OUTPUT_TYPE = 2
    VIOLATION_OF_SPEC = 3
    NOT_SUPPORTED = 4
    MISSING_PROPERTY = 5
    UNINITIALIZED = 6


class InternalError(Exception):
    """Something that a pass takes for granted does not hold."""


class RefusedError(InternalError, errors.ExportError):
    """A refusal of the pipeline that ExecuTorch's callers expect as `InternalError`."""


class ExportError(Exception):
    """A mistake in a model or in the use of an interface; the text begins with its kind."""

    def __init__(self, error_code: ExportErrorType, message: str) -> None:
        super().__init__(f"[{error_code}]: {message}")


def internal_assert(pred: bool, assert_msg: str) -> None:
    """InternalError with `assert_msg` unless `pred`."""
    if not pred:
        raise InternalError(assert_msg)
