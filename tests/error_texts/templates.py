"""Which of the texts that the sources construct errors with a text came from."""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python" / "tools"))

from error_table import python_texts, rust_texts  # noqa: E402

from pteron import errors  # noqa: E402


@cache
def run_half() -> dict[str, str]:
    """Every text of the run half with its class; braces stand for names, numbers and shapes.

    Texts of bugs (`InternalError`) are not among them: no call may end in one.
    """
    found: dict[str, str] = {}
    for cls, text, _ in [*rust_texts(), *python_texts()]:
        if not issubclass(cls, (errors.ExportError, errors.InternalError)):
            # What the tables of docs/reference/errors.md add is not in the message.
            text = re.sub(r" \(limits\.\w+\)$", "", " ".join(text.split()))
            found[text] = cls.__name__
    return found


@cache
def _patterns() -> list[tuple[str, re.Pattern[str]]]:
    out = []
    for text in run_half():
        parts = [re.escape(p) for p in re.split(r"\{[^{}]*\}", text)]
        out.append((text, re.compile(r"(?:^|: )" + ".*?".join(parts) + r"(?=$|; | \[| \()")))
    # The most telling one first: a text of braces alone fits everything.
    literal = lambda text: len(re.sub(r"\{[^{}]*\}", "", text))  # noqa: E731
    return sorted(out, key=lambda p: -literal(p[0]))


@cache
def template_of(text: str) -> str | None:
    """The text of the sources that fits best; None where none does."""
    return next((template for template, pattern in _patterns() if pattern.search(text)), None)
