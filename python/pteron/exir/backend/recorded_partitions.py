"""What partitioners and backends do to a program, for the report on a lowering."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.export import ExportedProgram

from pteron.exir.lowering_report import Counts, calls_of, recorder

STAGE = "to_backend"


@contextmanager
def recorded_partition(
    program: ExportedProgram, partitioner: Any, method: str
) -> Iterator[list[torch.fx.Node]]:
    """A partitioner that picks parts of a method; they are put into the list."""
    parts: list[torch.fx.Node] = []
    found = recorder()
    if found is None:
        yield parts
        return
    with found.timed() as seconds:
        yield parts
    calls = calls_of(program)
    name = getattr(partitioner, "__name__", type(partitioner).__name__)
    note = f"{len(parts)} partition{'' if len(parts) == 1 else 's'}"
    found.add(STAGE, name, method, seconds[0], (calls, calls), note)


@contextmanager
def recorded_backend(backend: str, calls: Mapping[str, Sequence[torch.fx.Node]]) -> Iterator[None]:
    """A backend that compiles parts of all methods: calls in the parts become calls of delegates."""
    found = recorder()
    if found is None:
        yield
        return
    parts = [call.meta["submodule_program"] for each in calls.values() for call in each]
    before = sum((calls_of(part) for part in parts), Counter())
    with found.timed() as seconds:
        yield
    after: Counts = Counter({"executorch_call_delegate": len(parts)})
    (method, *others) = calls
    found.add(STAGE, backend, "" if others else method, seconds[0], (before, after))
