"""Names from files in texts: not longer, and not more of them, than a reader takes in."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

__all__ = ["shown_names"]

_MOST = 20
_LONGEST = 80


def shown_names(names: Iterable[str]) -> str:
    """The first names, each cut, with commas; "none" without any."""
    listed = list(
        islice((f"{name[:_LONGEST]}..." if len(name) > _LONGEST else name for name in names), _MOST + 1)
    )
    more = ", ..." if len(listed) > _MOST else ""
    return ", ".join(listed[:_MOST]) + more or "none"
