"""What a program is loaded from, in a form that travels to other processes.

A file is remembered by its path and by what the operating system says of it; its content is hashed when the
program is pickled, not when it is loaded. A process that gets the pickle compares size and hash with the file
that it finds, except where the operating system says that it is the very file, unchanged. Bytes are
remembered as they are.
"""

from __future__ import annotations

import functools
import hashlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pteron import _native
from pteron.errors import ExternalDataError, InputTypeError, ProgramError
from pteron.program_source import LOADED, Arguments, TakenFile, load
from pteron.shown_names import shown_names

if TYPE_CHECKING:
    from pteron._native import Limits, Program

__all__ = [
    "FileSource",
    "FileStamp",
    "Recipe",
    "StoredContent",
    "label_of",
    "limit_fields",
    "recipe_of",
    "recipe_of_arguments",
]

# Clocks of file systems are coarse: a file that was written less than this ago may be written again and look
# the same.
_SETTLED_NS = 2_000_000_000


@dataclass(frozen=True)
class FileStamp:
    """What the operating system says of a file: which one it is, its size, when it was last written and
    changed.
    """

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, path: str) -> FileStamp:
        """The stamp of the file at `path` now; OSError where there is none."""
        return cls.from_stat(os.stat(path))

    @classmethod
    def from_stat(cls, found: os.stat_result) -> FileStamp:
        """The stamp in what the operating system said."""
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

    def has_content_of(self, other: FileStamp) -> bool:
        """Is it the same file, not written since? A new mode or link changes the stamp, and not the
        content.
        """
        return replace(self, ctime_ns=other.ctime_ns) == other


@dataclass(frozen=True)
class StoredContent:
    """What a file held in the process that pickled a program of it."""

    size: int
    sha256: str
    stamp: FileStamp
    is_settled: bool


@functools.lru_cache(maxsize=64)
def _sha256(path: str, stamp: FileStamp) -> str:
    """The hash of a file, taken once for each stamp that it has."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True)
class FileSource:
    """A file that a program, or its data, is loaded from.

    Attributes:
        path: absolute.
        is_data: is it a data file of the program?
        stamp: the file when this process loaded it; None where it comes from a pickle and was not looked at.
        content: what the process had in it that the pickle comes from; None where it does not come from one.
    """

    path: str
    is_data: bool
    stamp: FileStamp | None
    content: StoredContent | None = None

    def here(self) -> FileSource:
        """The file as it is in this process, with a stamp.

        Raises:
            OSError: there is no such file here.
            ProgramError, ExternalDataError: it has another size or content than where it was pickled.
        """
        stamp, content = FileStamp.of(self.path), self.content
        if content is None or (content.is_settled and stamp == content.stamp):
            return replace(self, stamp=stamp)
        if stamp.size != content.size:
            raise self.other("size", f"{content.size} bytes", f"{stamp.size} bytes")
        if _sha256(self.path, stamp) != content.sha256:
            raise self.other("content", "the same bytes", "others of the same size")
        return replace(self, stamp=stamp)

    def __reduce__(self) -> tuple[Any, ...]:
        return FileSource, (self.path, self.is_data, None, self.content or self._content())

    def _content(self) -> StoredContent:
        stamp = FileStamp.of(self.path)
        if self.stamp is None or not stamp.has_content_of(self.stamp):
            size = "unknown" if self.stamp is None else f"{self.stamp.size} bytes"
            raise self.other("size or time of writing", size, f"{stamp.size} bytes")
        is_settled = time.time_ns() - stamp.ctime_ns > _SETTLED_NS
        return StoredContent(stamp.size, _sha256(self.path, stamp), stamp, is_settled)

    def other(self, what: str, expected: str, got: str) -> ProgramError | ExternalDataError:
        """The error for a file that is not the one that was pickled."""
        name = shown_names([os.path.basename(self.path)])
        hint = "give every process the same file, or load the program from its bytes"
        if self.is_data:
            return ExternalDataError(
                f"the data file {name} has another {what} than when the program was loaded",
                expected=expected,
                got=got,
                hint=hint,
            )
        return ProgramError(
            f"the file {name} has another {what} than when the program was loaded",
            expected=expected,
            got=got,
            hint=hint,
        )


@dataclass(frozen=True)
class Recipe:
    """What `load` was given, in a form that outlives it.

    Attributes:
        source: file or bytes of the program.
        data: the same for its data files, by the names that errors call them.
        mmap: are files mapped?
        limits: of the program, or None.
    """

    source: FileSource | bytes
    data: Mapping[str, FileSource | bytes]
    mmap: bool
    limits: Limits | None

    def here(self) -> Recipe:
        """The recipe with files as they are in this process; what `FileSource.here` raises."""
        data = {name: _here(source) for name, source in self.data.items()}
        return replace(self, source=_here(self.source), data=data)

    def key(self) -> tuple[object, ...]:
        """Equal where the same files or bytes are loaded in the same way."""
        limits = None if self.limits is None else tuple(limit_fields(self.limits).values())
        return _key(self.source), tuple(map(_key, self.data.values())), self.mmap, limits

    def load(self) -> Program:
        """Loads the program; what `load` raises, and ProgramError for a file that changes meanwhile."""
        data = {name: _given(source) for name, source in self.data.items()}
        program = load(_given(self.source), data=data or None, mmap=self.mmap, limits=self.limits)
        loaded = recipe_of(program)
        for wanted, found in zip(self._files(), loaded._files(), strict=True):
            if found.stamp != wanted.stamp:
                raise wanted.other("time of writing", "the file as it was checked", "a newer one")
        return program

    def _files(self) -> list[FileSource]:
        return [file for file in (self.source, *self.data.values()) if isinstance(file, FileSource)]


def limit_fields(limits: Limits) -> dict[str, int | float | None]:
    """The keyword arguments that make equal limits."""
    names = ("arena_bytes", "instructions", "time", "nesting", "values", "rank")
    return {name: getattr(limits, name) for name in names}


def _here(source: FileSource | bytes) -> FileSource | bytes:
    return source if isinstance(source, bytes) else source.here()


def _given(source: FileSource | bytes) -> str | bytes:
    return source if isinstance(source, bytes) else source.path


def _key(source: FileSource | bytes) -> object:
    return hashlib.sha256(source).hexdigest() if isinstance(source, bytes) else source.stamp


def _remembered(file: TakenFile) -> FileSource | bytes:
    if file.path is None:
        return file.content
    return FileSource(
        file.path, file.is_data, None if file.found is None else FileStamp.from_stat(file.found)
    )


def _recipe(arguments: Arguments) -> Recipe:
    data = {name: _remembered(file) for name, file in arguments.data.items()}
    return Recipe(_remembered(arguments.source), data, arguments.mmap, arguments.limits)


def recipe_of(program: Program) -> Recipe:
    """What a program was loaded from.

    Raises:
        InputTypeError: it was loaded on a runtime of its own, which no other process has.
    """
    arguments = LOADED.get(program)
    if arguments is None:
        raise InputTypeError(
            "a program on a Runtime of its own cannot be pickled",
            hint="load it without runtime=, and register backends and kernels in each process",
        )
    return _recipe(arguments)


def label_of(source: Program | Recipe | None) -> str:
    """What a program is called in counters and logs: the name of its file, "program" without one."""
    if isinstance(source, _native.Program):
        arguments = LOADED.get(source)
        path = None if arguments is None else arguments.source.path
    else:
        path = source.source.path if source is not None and isinstance(source.source, FileSource) else None
    return "program" if path is None else os.path.basename(path)


def recipe_of_arguments(source: Any, data: Any, mmap: bool, limits: Limits | None) -> Recipe:
    """What `load` would remember of these arguments. A binary file is read to its end.

    Raises:
        OSError: a file is not there.
        InputTypeError: a source that is neither a path nor bytes nor a binary file.
    """
    arguments = Arguments(source, data, mmap, limits)
    for name, file in {"source": arguments.source, **arguments.data}.items():
        if hasattr(file.given, "read"):
            file.given.read()
        elif file.path is None and not isinstance(file.given, bytes):
            raise InputTypeError(
                "a predictor is made from a file or a program",
                argument=name,
                expected="a path, bytes, another buffer, a binary file or a Program",
                got=type(file.given).__name__,
                hint="pass the path of the file",
            )
        if file.path is not None:
            os.stat(file.path)
    return _recipe(arguments)
