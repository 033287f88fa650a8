"""Decorators of interfaces that may change: calls, subclasses and uses warn."""

from __future__ import annotations

from typing_extensions import deprecated

__all__ = ["ExperimentalWarning", "deprecated", "experimental"]


class ExperimentalWarning(DeprecationWarning):
    """The interface may change without notice. Hidden by default, as other deprecations are."""


class experimental(deprecated):  # noqa: N801 -- the name that callers write
    """`@experimental("why")`: uses of a class or function warn with `ExperimentalWarning`."""

    def __init__(
        self,
        message: str,
        /,
        *,
        category: type[Warning] | None = ExperimentalWarning,
        stacklevel: int = 1,
    ) -> None:
        super().__init__(message, category=category, stacklevel=stacklevel)
