"""Tables as commands print them: plain columns, on a terminal with rich installed a table of rich's."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Sequence

from pteron.devtools.text_table import is_number_column, text_table

__all__ = ["table"]


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The rows under their headings. Pipes and files get plain text whatever is installed."""
    if not sys.stdout.isatty():
        return text_table(headings, rows)
    try:
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return text_table(headings, rows)
    out = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for number, heading in enumerate(headings):
        is_number = is_number_column([row[number] for row in rows])
        out.add_column(heading, justify="right" if is_number else "left", overflow="fold", no_wrap=is_number)
    for row in rows:
        out.add_row(*map(Text, row))
    text = io.StringIO()
    width = shutil.get_terminal_size().columns
    Console(file=text, force_terminal=True, width=width).print(out)
    return text.getvalue()
