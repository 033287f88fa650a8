"""Numbers of the command line: what argparse asks of them, so that a wrong one is named before any work."""

from __future__ import annotations

import argparse
import math

__all__ = ["count", "count_or_zero", "seconds", "tolerance"]


def count(text: str) -> int:
    """A whole number from 1."""
    return _whole(text, 1)


def count_or_zero(text: str) -> int:
    """A whole number from 0."""
    return _whole(text, 0)


def seconds(text: str) -> float:
    """A time above 0."""
    value = _real(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no time above 0 seconds")
    return value


def tolerance(text: str) -> float:
    """An error that is allowed, from 0."""
    value = _real(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is below 0")
    return value


def _whole(text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None
    if value < least:
        raise argparse.ArgumentTypeError(f"{text!r} is below {least}")
    return value


def _real(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not finite")
    return value
