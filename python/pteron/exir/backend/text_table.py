"""Tables as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def text_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table with aligned columns; columns that are numbers in every row are aligned right."""
    listed = [tuple(row) for row in rows]
    widths = [max(len(row[column]) for row in (titles, *listed)) for column in range(len(titles))]
    is_number = [all(row[column].isdecimal() for row in listed) for column in range(len(titles))]

    def line(row: Sequence[str]) -> str:
        cells = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, is_number, strict=True)
        )
        return "  ".join(cells).rstrip()

    return [line(row) for row in (tuple(titles), *listed)]
