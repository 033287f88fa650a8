"""A file that is laid out but not written, and how it is written so that nobody sees half of it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_CHUNK = 64 << 20
_ZEROS = memoryview(bytes(1 << 16))


@dataclass(frozen=True)
class FileLayout:
    """`head`: the first bytes. `pieces`: offset in the file and bytes, in file order, without overlap; what
    lies between is zero. `size`: bytes of the file. The pieces are borrowed from whoever owns the weights.
    """

    head: bytes
    pieces: Sequence[tuple[int, memoryview]]
    size: int

    def parts(self) -> Iterator[memoryview]:
        """The bytes of the file in order, in parts of at most 64 MiB."""
        yield memoryview(self.head)
        at = len(self.head)
        for offset, piece in [*self.pieces, (self.size, memoryview(b""))]:
            while at < offset:
                zeros = _ZEROS[: offset - at]
                at += len(zeros)
                yield zeros
            for start in range(0, len(piece), _CHUNK):
                yield piece[start : start + _CHUNK]
            at += len(piece)

    def write_to(self, file: IO[bytes]) -> None:
        """Write the file to an open binary file. Takes no memory beyond the parts' own."""
        for part in self.parts():
            rest = part
            while len(rest):
                # Unbuffered files may take less than they are given.
                written = file.write(rest)
                rest = rest[len(rest) if written is None else written :]

    def to_bytes(self) -> bytes:
        """The whole file in memory."""
        return b"".join(self.parts())


def write_file(target: Path, what: str, write: Callable[[IO[bytes]], None]) -> None:
    """Let `write` fill a file at `target`: a reader sees the old file or the whole new one.

    `what` names the kind of file in messages. OSError where it cannot be written.
    """
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb", buffering=0) as file:
            write(file)
        os.replace(temporary, target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        # The system's text names the temporary file, which means nothing to the caller.
        place = "" if target.parent.is_dir() else f"; the directory {target.parent} does not exist, make it"
        reason = f"{what} cannot be written: {error.strerror}{place}"
        raise OSError(error.errno, reason, str(target)) from None
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
