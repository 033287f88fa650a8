"""Bytes that stay in a file until they are written."""

from __future__ import annotations

import hashlib
import io
import mmap
import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import IO

_CHUNK = 8 << 20


class FileBackedData:
    """The bytes of a file that stays on disk. `cleanup`: the file goes when the object is closed or
    collected.
    """

    def __init__(self, path: str, cleanup: bool = False, sha256: bytes | None = None) -> None:
        self._path = Path(path)
        self._size = self._path.stat().st_size
        self._digest = sha256
        self._cleanup = weakref.finalize(self, _remove, self._path) if cleanup else None

    @classmethod
    def move_from(cls, path: str, sha256: bytes | None = None) -> FileBackedData:
        """Takes the file at `path` over, under a name of its own in the same folder."""
        handle, owned = tempfile.mkstemp(prefix=".pteron_", suffix=".data", dir=os.path.dirname(path) or ".")
        os.close(handle)
        try:
            os.replace(path, owned)
        except BaseException:
            os.remove(owned)
            raise
        return cls(owned, cleanup=True, sha256=sha256)

    def __len__(self) -> int:
        return self._size

    def prefix(self, size: int) -> bytes:
        """The first `size` bytes, or all if there are fewer."""
        with self._path.open("rb") as file:
            return file.read(size)

    def sha256(self) -> bytes:
        """The digest of the contents, computed once."""
        if self._digest is None:
            with self._path.open("rb") as file:
                self._digest = hashlib.file_digest(file, "sha256").digest()
        return self._digest

    def to_bytes(self) -> bytes:
        """All bytes."""
        return self._path.read_bytes()

    def view(self) -> memoryview:
        """All bytes, where the file lies: nothing is read before it is looked at. Good after `close` too."""
        if self._size == 0:
            return memoryview(b"")
        with self._path.open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), self._size, access=mmap.ACCESS_READ))

    def write_to_file(self, outfile: IO[bytes] | io.BufferedIOBase) -> None:
        """Copies the file into an open one."""
        with self._path.open("rb") as file:
            shutil.copyfileobj(file, outfile, length=_CHUNK)

    def close(self) -> None:
        """Removes the file if it is this object's own."""
        if self._cleanup is not None:
            self._cleanup()

    def __enter__(self) -> FileBackedData:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
