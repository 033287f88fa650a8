"""The data files of a program while it is emitted."""

from __future__ import annotations

import math

from pteron.errors import ExportError
from pteron.exir.schema import DataFileEntry, TensorLayout


class DataFiles:
    """Entries by file and key. A key stands for the same bytes in the whole program, and is in one file."""

    def __init__(self) -> None:
        self._files: dict[str, dict[str, DataFileEntry]] = {}
        self._file_of_key: dict[str, str] = {}

    def add(
        self, tag: str, key: str, data: bytes | memoryview, alignment: int, layout: TensorLayout | None
    ) -> None:
        """Store `data` under `key` in the file `tag`.

        ExportError where the key is taken by other bytes, another layout, or in another file.
        """
        known_tag = self._file_of_key.setdefault(key, tag)
        known = self._files.setdefault(known_tag, {}).get(key)
        if known is None:
            self._files[tag][key] = DataFileEntry(key, data, alignment, layout)
            return
        if known_tag != tag:
            raise ExportError(
                f"{key!r} is to go into two data files, {known_tag!r} and {tag!r}",
                expected="one file for all methods",
                got=f"{known_tag!r} and {tag!r}",
                hint="give the same tag wherever the name is the same",
            )
        if known.layout != layout or known.data != data:
            raise ExportError(
                f"two different tensors are called {key!r}, and data files find tensors by name",
                got=key,
                hint="export the methods from one module that has both under different names, or keep one of "
                "them in the program file: external_constants=<function that returns None for it>",
            )
        known.alignment = math.lcm(known.alignment, alignment)

    def entries(self) -> dict[str, list[DataFileEntry]]:
        """File to its entries, both sorted by name."""
        return {
            tag: [entries[key] for key in sorted(entries)] for tag, entries in sorted(self._files.items())
        }
