"""Rows as text in columns: numbers to the right, words to the left."""

from __future__ import annotations

import re
from collections.abc import Sequence

_NUMBER = re.compile(r"-?[\d.,]+(%|x)?")


def text_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns whose cells are all numbers stand to the right; no line ends in spaces."""
    table = [tuple(headings), *(tuple(row) for row in rows)]
    columns = list(zip(*table, strict=True))
    widths = [max(map(len, column)) for column in columns]
    are_numbers = [is_number_column(column[1:]) for column in columns]
    lines = []
    for row in table:
        cells = (
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(row, widths, are_numbers, strict=True)
        )
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines) + "\n"


def size_text(nbytes: float) -> str:
    """`12.3 MB`: powers of a thousand."""
    for unit in ("B", "kB", "MB"):
        if nbytes < 1000:
            return f"{nbytes:.0f} B" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.1f} GB"


def is_number_column(cells: Sequence[str]) -> bool:
    """Whether a column has cells, and all of them are numbers."""
    return bool(cells) and all(_NUMBER.fullmatch(cell) for cell in cells)
