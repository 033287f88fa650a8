"""`BackendWithDelegateMappingDemo`, run half in Python: reports an event for each step of its blob, under the
id that the exporter gave it. It computes nothing, since the blob lists the steps without weights and wiring:
its output holds zeros.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


class DelegateMappingRuntime:
    """The backend object: register it under the name `BackendWithDelegateMappingDemo`."""

    def is_available(self) -> bool:
        """Always."""
        return True

    def init(self, ctx: Any, processed: Any, compile_specs: Mapping[str, bytes]) -> DelegateMappingDelegate:
        """Reads the list of steps.

        Raises:
            ValueError: the list is damaged.
        """
        return DelegateMappingDelegate(_read_steps(bytes(processed)))


class DelegateMappingDelegate:
    """The steps of one blob: name and id."""

    num_outputs = 1

    def __init__(self, steps: list[tuple[str, int]]) -> None:
        self._steps = steps

    def execute(self, ctx: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Fills the output with zeros and reports the steps; the name of a step is the event's metadata."""
        for output in outputs:
            np.asarray(output)[...] = 0
        for name, identifier in self._steps:
            start = time.monotonic_ns()
            ctx.event(identifier, start, time.monotonic_ns(), name.encode())


def _read_steps(blob: bytes) -> list[tuple[str, int]]:
    """``<count>#`` and then ``<step>,<id>,`` for each."""
    try:
        count, listed = blob.decode().split("#", 1)
        parts = listed.removesuffix(",").split(",") if listed else []
        steps = [(name, int(number)) for name, number in zip(parts[::2], parts[1::2], strict=True)]
        is_whole = len(steps) == int(count)
    except ValueError:
        is_whole = False
    if not is_whole:
        raise ValueError("the list of steps cannot be read: expected '<count>#' and '<step>,<id>,' for each")
    return steps
