"""`pteron.load`, and what it keeps of its arguments, so that another process can load the same program.

What becomes of them when a program is pickled is `pteron.recipe`.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pteron import _native

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pteron._native import Limits, Program, Runtime, _File

__all__ = ["LOADED", "Arguments", "TakenFile", "load", "named_files"]


class _Reader:
    """A binary file whose content is kept when it is read."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.content: Any = None

    def read(self) -> Any:
        self.content = self._file.read()
        return self.content


class TakenFile:
    """One file that `load` was given.

    Attributes:
        given: what the native module gets.
        is_data: is it a data file of the program?
        path: absolute; None where the bytes were given.
        found: what the operating system said of the file before it was loaded; None where it said nothing.
    """

    def __init__(self, source: Any, is_data: bool) -> None:
        self.given = _as_bytes(source)
        self.is_data = is_data
        self.path: str | None = None
        self.found: os.stat_result | None = None
        if hasattr(self.given, "read"):
            self.given = _Reader(self.given)
        elif isinstance(self.given, (str, os.PathLike)):
            self._look_at(self.given)

    @property
    def content(self) -> bytes:
        """The bytes that were given, or read from a binary file."""
        return bytes(self.given.content if isinstance(self.given, _Reader) else self.given)

    def _look_at(self, path: str | os.PathLike[str]) -> None:
        # The native module says what is wrong with a path.
        try:
            self.path = os.path.abspath(os.fsdecode(path))
            self.found = os.stat(self.path)
        except (OSError, ValueError, TypeError):
            return


class Arguments:
    """What `load` was given: the program, its data files by the names that errors call them, and how."""

    def __init__(self, source: Any, data: Any, mmap: bool, limits: Limits | None) -> None:
        self.source = TakenFile(source, is_data=False)
        self.data = {name: TakenFile(file, is_data=True) for name, file in named_files(data).items()}
        self.mmap = mmap
        self.limits = limits


#: What the programs of this process were loaded with; those on a runtime of their own are not among them.
LOADED: weakref.WeakKeyDictionary[Program, Arguments] = weakref.WeakKeyDictionary()


def _as_bytes(source: Any) -> Any:
    """The bytes of a buffer, copied where it is no `bytes` object; anything else as it is."""
    if type(source) is bytes:
        return source
    try:
        with memoryview(source):
            pass
    except (TypeError, ValueError, BufferError):
        return source
    return bytes(source)


def load(
    source: _File,
    *,
    data: _File | Sequence[_File] | Mapping[str, _File] | None = None,
    mmap: bool = True,
    runtime: Runtime | None = None,
    limits: Limits | None = None,
) -> Program:
    """Loads a program.

    Args:
        source: path of a `.pte` file, its bytes (exact `bytes` are borrowed, any other buffer is copied), or
            a binary file that is read to its end. A bundled program (`.bpte`) is loaded as the program in it.
        data: the data files (`.ptd`) that the program keeps tensors in: one of what `source` can be, a list
            of them, or a dict from name to them.
        mmap: map the weights of files instead of reading them; pass False for files that may change or shrink
            while they are used.
        runtime: whose kernels and backends to use; None for the process-wide default.
        limits: what the program may use.

    Raises:
        FileNotFoundError: there is no such file.
        ProgramError: the file is damaged.
        ExternalDataError: a data file is damaged, or one key stands for two things; that a tensor is missing
            or another one is noticed when its method is first used.
        LimitExceeded: the program is beyond its limits.
    """
    taken = Arguments(source, data, mmap, limits)
    files = {name: file.given for name, file in taken.data.items()}
    program = _native.load(taken.source.given, data=files or None, mmap=mmap, runtime=runtime, limits=limits)
    if runtime is None:
        LOADED[program] = taken
    return program


def named_files(data: Any) -> dict[str, Any]:
    """Data files by the names that errors call them."""
    if data is None:
        return {}
    if isinstance(data, Mapping):
        return dict(data.items())
    if isinstance(data, (list, tuple)):
        return {f"data[{index}]": file for index, file in enumerate(data)}
    return {"data": data}
