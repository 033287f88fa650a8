"""Rows as a table for notebooks: plain markup that needs no script, in the notebook's own colours."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

#: Rows that a notebook shows.
MOST = 100
_BAR = "rgba(63,127,181,0.28)"


def html_table(
    title: str,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    shares: Sequence[float],
    *,
    is_open: bool = True,
) -> str:
    """Rows under a title that opens and closes; behind each first cell a bar as long as its share."""
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in headings)
    body = "".join(_row(row, share) for row, share in zip(rows[:MOST], shares, strict=False))
    more = f"<p>and {len(rows) - MOST} more</p>" if len(rows) > MOST else ""
    return (
        f"<details{' open' if is_open else ''}><summary><b>{escape(title)}</b></summary>"
        f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>{more}</details>"
    )


def _row(row: Sequence[str], share: float) -> str:
    width = f"{100 * min(max(share, 0.0), 1.0):.1f}%"
    bar = f"text-align:left;background:linear-gradient(to right,{_BAR} {width},transparent {width})"
    first, *rest = row
    cells = "".join(f"<td>{escape(cell)}</td>" for cell in rest)
    return f'<tr><th scope="row" style="{bar}">{escape(first)}</th>{cells}</tr>'
