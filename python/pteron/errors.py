"""The exception tree.

Plain Python, so that it can be imported without the native module, which instantiates these classes. Every
exception carries fields that say where and why (None where a field does not apply), can be pickled, and has a
text that says everything the fields say, on one line except where an `ExportError` lists several reasons.
"""

from __future__ import annotations

import re
from typing import TypedDict, Unpack

_UNPRINTABLE = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069]")


def _printable(text: str) -> str:
    """`text` on one line, without characters that could change what a terminal shows around it."""
    return _UNPRINTABLE.sub(lambda c: f"\\u{{{ord(c[0]):x}}}", text)


class Details(TypedDict, total=False):
    """Where and why: what an error knows beside its message. Left out, or None, where it does not apply."""

    method: str | None
    instruction: int | None
    operator: str | None
    argument: str | None
    expected: str | None
    got: str | None
    source_line: str | None
    hint: str | None


# What stands before the message, and how the message itself would say it.
_PLACES = (
    ("method", "method '{}'", "'{}'"),
    ("instruction", "instruction {}", "instruction {}"),
    ("operator", "operator {}", "{}"),
    ("argument", "argument '{}'", "{}"),
)
# What stands behind it.
_REASONS = (
    ("expected", "; expected {}"),
    ("got", "; got {}"),
    ("source_line", "; model source: {}"),
    ("hint", " (hint: {})"),
)


def _full_text(message: str, details: Details, *, has_lines: bool) -> str:
    """`message` and what the details know beyond it, printable."""

    def shown(text: object) -> str:
        lines = str(text).split("\n") if has_lines else [str(text)]
        return "\n".join(map(_printable, lines))

    message = shown(message)
    known = {name: shown(value) for name, value in details.items() if value is not None}
    places = [
        place.format(known[name])
        for name, place, said in _PLACES
        if name in known and said.format(known[name]) not in message
    ]
    text = f"{', '.join(places)}: {message}" if places else message
    reasons = [
        reason.format(known[name])
        for name, reason in _REASONS
        if name in known and known[name] not in message
    ]
    return text + "".join(reasons)


class PteronError(RuntimeError):
    """Base of all errors that pteron raises.

    Fields: `method`, `instruction` (index), `operator`, `argument`, `expected`, `got`, `source_line` (of the
    model), `hint`, keyword arguments under the same names. Those that do not apply are None; the text alone
    says it all.
    """

    method: str | None
    instruction: int | None
    operator: str | None
    argument: str | None
    expected: str | None
    got: str | None
    source_line: str | None
    hint: str | None

    # Whether the text may have several lines.
    _has_lines = False

    def __init__(self, message: str, **details: Unpack[Details]) -> None:
        unknown = sorted(details.keys() - Details.__annotations__.keys())
        if unknown:
            raise TypeError(f"{type(self).__name__}() got an unexpected keyword argument {unknown[0]!r}")
        super().__init__(_full_text(message, details, has_lines=self._has_lines))
        for name in Details.__annotations__:
            setattr(self, name, details.get(name))

    def __str__(self) -> str:
        # Children of KeyError would otherwise show the text in quotes.
        return str(self.args[0]) if self.args else ""


class ProgramError(PteronError, ValueError):
    """A program file is damaged or breaks a rule of the format."""


class MissingOperatorError(PteronError):
    """A program needs operators that the runtime has no kernel for. The text names all of them."""


class MissingBackendError(PteronError, LookupError):
    """A program needs a backend that is not registered, or not available on this machine."""


class MethodNotFoundError(PteronError, KeyError):
    """The program has no method of that name."""


class InputError(PteronError, ValueError):
    """An input has a wrong count, shape, rank or value."""


class InputTypeError(InputError, TypeError):
    """An input has a wrong dtype or Python type."""


class KernelError(PteronError):
    """A kernel refused its arguments or failed."""


class DelegateError(PteronError):
    """A backend failed in init or execute. What it raised, if it is written in Python, is the `__cause__`.

    `backend` is its name; `debug_handle` its own number for the operation that failed, if it gave one.
    """

    backend: str | None
    debug_handle: int | None

    def __init__(
        self,
        message: str,
        *,
        backend: str | None = None,
        debug_handle: int | None = None,
        **details: Unpack[Details],
    ) -> None:
        if backend is not None and backend not in message:
            message = f"backend {backend}: {message}"
        if debug_handle is not None and f"debug handle is: {debug_handle}" not in message:
            message = f"{message}; debug handle is: {debug_handle}"
        super().__init__(message, **details)
        self.backend = backend
        self.debug_handle = debug_handle


class ExternalDataError(PteronError):
    """A data file is missing, damaged, or does not fit the program."""


class LimitExceeded(PteronError):  # noqa: N818 -- the public name; the limit is the caller's, not a fault of the program
    """A limit on memory, instructions or rank was reached."""


class Cancelled(PteronError):  # noqa: N818 -- the public name
    """The run was cancelled. The method can be used again."""


class DeadlineExceeded(PteronError):  # noqa: N818 -- the public name
    """The deadline passed before the run ended. The method can be used again."""


class MethodBusy(PteronError):  # noqa: N818 -- the public name
    """The method is running already, on another thread or further up this one."""


class OutputsInUseError(PteronError):
    """Outputs that an earlier call lent are still alive."""


class InternalError(PteronError):
    """A bug in pteron. The text says how to report it."""


class ExportError(PteronError):
    """A model could not be turned into a program. The text may list reasons on lines of their own."""

    _has_lines = True


class VerificationError(ExportError):
    """A graph breaks a rule of the pipeline stage it is in. The text shows the first such node."""


class MissingOutVariantError(ExportError):
    """An operator has no overload that writes into given tensors."""


class ExampleMismatchError(ExportError):
    """On its example a program gives another result than the captured model. The text names the outputs.

    `outputs`: their names; `difference`: the largest, as a part of the largest number of its output.
    """

    outputs: tuple[str, ...]
    difference: float

    def __init__(
        self,
        message: str,
        *,
        outputs: tuple[str, ...] = (),
        difference: float = 0.0,
        **details: Unpack[Details],
    ) -> None:
        super().__init__(message, **details)
        self.outputs = outputs
        self.difference = difference


class CaseMismatchError(ExportError, AssertionError):
    """A test case does not fit the program that it is to be bundled with."""


class UnsupportedProgramError(ExportError):
    """A program cannot be written, or its target cannot run it. The text names every reason.

    `problems` holds them one by one; each has `method`, `operator`, `what`, `source_line`.
    """

    problems: tuple[object, ...]

    def __init__(
        self,
        message: str,
        *,
        problems: tuple[object, ...] = (),
        **details: Unpack[Details],
    ) -> None:
        super().__init__(message, **details)
        self.problems = problems
