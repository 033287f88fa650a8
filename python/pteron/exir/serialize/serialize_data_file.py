"""Entries of a data file → the layout of a `.ptd` file."""

from __future__ import annotations

from collections.abc import Sequence

from pteron.exir.schema import DataFileEntry
from pteron.exir.serialize.file_layout import FileLayout


def lay_out_data_file(entries: Sequence[DataFileEntry], *, segment_alignment: int = 128) -> FileLayout:
    """The layout of a `.ptd` file; each distinct content is stored once, at a multiple of
    `segment_alignment` bytes and of the entry's own alignment.
    """
    from pteron import _native

    return FileLayout(*_native.layout_data_file(list(entries), segment_alignment=segment_alignment))
