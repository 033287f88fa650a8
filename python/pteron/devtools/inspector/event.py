"""One event of a run: an instruction, a part of a delegate, or a whole call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from pteron.devtools.data_frames import pandas_or_error

_MOST_OP_TYPES = 5


class PerfData:
    """Times of an event, one for each run, with their percentiles, mean and extremes."""

    def __init__(self, raw: list[float]) -> None:
        self.raw = raw

    def __repr__(self) -> str:
        return f"PerfData({len(self.raw)} runs, p50={self.p50:g}, min={self.min:g}, max={self.max:g})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PerfData) and self.raw == other.raw

    __hash__ = None  # type: ignore[assignment]

    @property
    def p10(self) -> float:
        """A tenth of the runs take less."""
        return float(np.percentile(self.raw, 10))

    @property
    def p50(self) -> float:
        """The median."""
        return float(np.percentile(self.raw, 50))

    @property
    def p90(self) -> float:
        """A tenth of the runs take more."""
        return float(np.percentile(self.raw, 90))

    @property
    def avg(self) -> float:
        """The mean."""
        return float(np.mean(self.raw))

    @property
    def min(self) -> float:
        """The shortest run."""
        return min(self.raw)

    @property
    def max(self) -> float:
        """The longest run."""
        return max(self.raw)


@dataclass
class Event:
    """An event over all runs of its block.

    `name`: as the runtime says, of a part of a delegate its identifier. `op_types`, `stack_traces`,
    `module_hierarchy`: the operators of the model behind it, the latter two by node. `debug_handles`: those
    of the nodes. `num_outputs`: results of a delegate call. `debug_data`: what it wrote in the first run;
    None stands for a tensor whose bytes are not there.
    """

    name: str
    perf_data: PerfData | None = None
    op_types: list[str] = field(default_factory=list)
    delegate_debug_identifier: int | str | None = None
    debug_handles: int | Sequence[int] | None = None
    num_outputs: int = 1
    stack_traces: dict[str, Any] = field(default_factory=dict)
    module_hierarchy: dict[str, Any] = field(default_factory=dict)
    is_delegated_op: bool | None = None
    delegate_backend_name: str | None = None
    _delegate_debug_metadatas: list[Any] = field(default_factory=list)
    debug_data: list[Any] = field(default_factory=list)
    _instruction_id: int | None = None
    _delegate_metadata_parser: Callable[[list[Any]], Any] | None = None
    _delegate_time_scale_converter: Callable[[Any, Any], Any] | None = None
    _start_time: list[int | float] | None = None
    #: Instructions that the event stands for, where they are several, and handles that the event states.
    _instructions: tuple[int, ...] = ()
    _stated_handles: tuple[int, ...] = ()

    @cached_property
    def delegate_debug_metadatas(self) -> Any:
        """What the parser makes of the delegate's metadata, or the metadata themselves without one."""
        if not self.is_delegated_op or self._delegate_metadata_parser is None:
            return self._delegate_debug_metadatas
        return self._delegate_metadata_parser(self._delegate_debug_metadatas)

    @property
    def raw_delegate_debug_metadatas(self) -> list[Any]:
        """The delegate's metadata, one for each run."""
        return self._delegate_debug_metadatas

    @property
    def start_time(self) -> list[int | float] | None:
        """When it began in each run, in the runtime's unit."""
        return self._start_time

    def asdict(self, _units: str = "") -> dict[str, Any]:
        """The event's columns; `_units` stands behind the names of those that are times."""
        perf = self.perf_data
        measures = ("p10", "p50", "p90", "avg", "min", "max")
        return {
            "event_name": self.name,
            "raw": [perf.raw if perf else None],
            **{f"{each}{_units}": getattr(perf, each) if perf else None for each in measures},
            "op_types": [_shortened(self.op_types)],
            "delegate_debug_identifier": self.delegate_debug_identifier,
            "stack_traces": [self.stack_traces],
            "module_hierarchy": [self.module_hierarchy],
            "is_delegated_op": self.is_delegated_op,
            "delegate_backend_name": self.delegate_backend_name,
            "debug_data": [self.debug_data],
            "start_time": [self._start_time],
        }

    def to_dataframe(self, _units: str = "") -> Any:
        """The event as a pandas data frame of one row.

        Raises:
            ImportError: pandas is not installed.
        """
        return pandas_or_error("Event.to_dataframe").DataFrame(self.asdict(_units))


def _shortened(names: list[str]) -> list[str] | str:
    if len(names) < _MOST_OP_TYPES:
        return names
    return f"['{names[0]}', '{names[1]}' ... '{names[-1]}'] ({len(names)} total)"
