"""The memory of a method: what load makes of the file's plan, and what is in it when most is in use."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from pteron._native import Program
from pteron.devtools.description import MethodDescription, describe, describe_plan
from pteron.devtools.html_table import html_table
from pteron.devtools.lifetimes import flow_of, step_accesses
from pteron.devtools.live_memory import live_bytes
from pteron.devtools.sources import Sources
from pteron.devtools.text_table import text_table

_MOST_SHOWN = 10


@dataclass(frozen=True)
class LiveTensor:
    """A tensor in use at the peak: its bytes at the largest shape, and the step that wrote it."""

    nbytes: int
    text: str
    written_by: str
    module: str
    line: str


@dataclass(frozen=True, repr=False)
class MemoryReport:
    """Bytes of one session of a method; `str()` of it is a table.

    `file_arenas`: as the file plans them, `arenas`: as load does. `session_bytes`: all of a session's memory.
    `constant_bytes`: of the program, shared by its sessions. `peak_bytes`: of the arenas, most that is in use
    at one step, `peak_step`. `at_peak`: the tensors then, the largest first; views share bytes.
    """

    method: str
    file_arenas: tuple[int, ...]
    arenas: tuple[int, ...]
    session_bytes: int
    constant_bytes: int
    peak_bytes: int
    peak_step: int
    at_peak: tuple[LiveTensor, ...]

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        return asdict(self)

    def __repr__(self) -> str:
        return (
            f"<MemoryReport of {self.method}: {self.peak_bytes:,} bytes in use at step {self.peak_step},"
            f" a session takes {self.session_bytes:,}>"
        )

    def _repr_html_(self) -> str:
        rows = [
            (each.text, f"{each.nbytes:,}", each.written_by, each.module, each.line) for each in self.at_peak
        ]
        shares = [each.nbytes / max(self.peak_bytes, 1) for each in self.at_peak]
        heads = ("tensor", "bytes", "written by", "module", "line")
        table = html_table(f"in use at step {self.peak_step}", heads, rows, shares) if rows else ""
        return f"<p>{escape(self._head())}</p>{table}"

    def _head(self) -> str:
        return (
            f"method {self.method}: {sum(self.arenas):,} bytes planned "
            f"({sum(self.file_arenas):,} in the file), "
            f"{self.peak_bytes:,} in use at step {self.peak_step}; a session takes {self.session_bytes:,}, "
            f"constants {self.constant_bytes:,}"
        )

    def __str__(self) -> str:
        rows = [
            (f"{each.nbytes:,}", each.text, each.written_by, each.module, each.line)
            for each in self.at_peak[:_MOST_SHOWN]
        ]
        table = text_table(("bytes", "tensor", "written by", "module", "line"), rows) if rows else ""
        return f"{self._head()}\n{table}"


def memory_report(program: Program, method: str = "forward") -> MemoryReport:
    """What a session of a method needs, and what needs it.

    Raises:
        PteronError: those of loading the method.
    """
    plan, file = describe_plan(program, method), describe(program)
    live = live_bytes(plan)
    peak = max(live, default=0)
    at = live.index(peak) if live else 0
    return MemoryReport(
        method=method,
        file_arenas=file.methods[method].arenas,
        arenas=plan.arenas,
        session_bytes=plan.session_bytes,
        constant_bytes=file.constant_bytes,
        peak_bytes=peak,
        peak_step=at,
        at_peak=_tensors_at(plan, Sources(program, method), at),
    )


def _tensors_at(plan: MethodDescription, sources: Sources, at: int) -> tuple[LiveTensor, ...]:
    found = []
    for life in flow_of(plan, step_accesses(plan)).lifetimes:
        tensor = life.tensor
        if not life.first <= at <= life.last or tensor.arena is None:
            continue
        step = None if life.writer is None else plan.steps[life.writer]
        source = None if step is None else next(iter(sources.of(step)), None)
        given = "state" if tensor.is_state else "input"
        found.append(
            LiveTensor(
                tensor.nbytes,
                tensor.text,
                given if step is None else step.operator or step.name,
                source.module if source is not None else "",
                source.line if source is not None else "",
            )
        )
    return tuple(sorted(found, key=lambda each: -each.nbytes))
