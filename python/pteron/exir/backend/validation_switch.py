"""Turns off the check that a partitioner left the graph as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_is_enabled = True


def disable_validation() -> None:
    """Stops checking, for the rest of the process, that partitioners only tag."""
    global _is_enabled
    _is_enabled = False


@contextmanager
def validation_disabled() -> Iterator[None]:
    """Within it, a partitioner may change the graph that it tags."""
    global _is_enabled
    previous = _is_enabled
    _is_enabled = False
    try:
        yield
    finally:
        _is_enabled = previous


def is_validation_enabled() -> bool:
    """Whether partitioners are checked."""
    return _is_enabled
