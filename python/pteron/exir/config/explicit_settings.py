"""The settings object of a call."""

from __future__ import annotations

from typing import Any, TypeVar

Settings = TypeVar("Settings")


def explicit_settings(given: Any, kind: type[Settings], where: str) -> Settings:
    """`given`, or settings of `kind` with every default where it is None; `TypeError` for anything else.

    `where` names the caller's function and argument, for the error.
    """
    if given is None:
        return kind()
    if not isinstance(given, kind):
        raise TypeError(
            f"{where}: expected {kind.__name__} or None, got {type(given).__name__} {given!r}; "
            f"write {kind.__name__}(setting=...), from pteron.exir"
        )
    return given
