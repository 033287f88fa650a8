"""A file that is laid out but not written: its first bytes, and where the large pieces go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
