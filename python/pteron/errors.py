"""The exception tree. Plain Python: the native module instantiates these classes."""

from __future__ import annotations


class PteronError(RuntimeError):
    """Base of all errors that pteron raises. Fields that do not apply are None; the text alone says it all."""

    def __init__(
        self,
        message: str,
        *,
        method: str | None = None,
        instruction: int | None = None,
        operator: str | None = None,
        argument: str | None = None,
        expected: str | None = None,
        got: str | None = None,
        source_line: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.method = method
        self.instruction = instruction
        self.operator = operator
        self.argument = argument
        self.expected = expected
        self.got = got
        self.source_line = source_line
        self.hint = hint


class ExportError(PteronError):
    """A model could not be turned into a program."""
