"""A backend for pteron that multiplies by a number, compiled from C."""

from pteron_scale._scale import backend

__all__ = ["backend"]
