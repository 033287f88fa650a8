"""Tensors whose bytes lie in a file that has no name any more: pages that the system takes back when it needs
them, where a tensor in memory would keep them all.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import torch

#: Fewer bytes stay in memory.
_LEAST = 1 << 20


class MappedRows:
    """Blocks of rows, written to a file in `folder` as they come; `tensor` joins them.

    In memory where a file that is in use cannot be removed, as on Windows.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: IO[bytes] | None = None
        self._waiting: list[torch.Tensor] = []
        self._rows = 0

    def add(self, block: torch.Tensor) -> None:
        """Appends the rows of `block`, [rows, ...], of one type and width in all blocks.

        Raises:
            OSError: the file cannot be written.
        """
        self._waiting.append(block)
        self._rows += len(block)
        if self._file is None and sum(each.nbytes for each in self._waiting) >= _LEAST and os.name != "nt":
            self._file = tempfile.NamedTemporaryFile(dir=self._folder, prefix=".pteron-", delete=False)  # noqa: SIM115
        if self._file is not None:
            for each in self._waiting:
                elements: Any = each.contiguous().view(-1).view(torch.uint8).numpy()
                self._file.write(memoryview(elements))
            self._waiting = [self._waiting[-1][:0]]

    def tensor(self) -> torch.Tensor:
        """All rows."""
        if self._file is None:
            return torch.cat(self._waiting)
        (empty,) = self._waiting
        size = self._file.tell()
        self._file.close()
        stored = torch.UntypedStorage.from_file(self._file.name, False, size)
        result = torch.empty(0, dtype=empty.dtype)
        result.set_(stored, 0, (self._rows, *empty.shape[1:]))  # type: ignore[call-overload]
        return result

    def close(self) -> None:
        """Removes the file; what is mapped stays."""
        if self._file is not None:
            self._file.close()
            Path(self._file.name).unlink()


@contextmanager
def mapped_rows(folder: Path) -> Iterator[dict[str, MappedRows]]:
    """Rows by name, which the caller adds; their files are gone behind the block."""
    made: dict[str, MappedRows] = {}
    try:
        yield made
    finally:
        for rows in made.values():
            rows.close()
