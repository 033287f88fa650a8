"""What one call of `pteron.export` did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pteron.exir.backend.delegation_report import DelegationReport
from pteron.exir.export.dimension_limits import DynamicExtent
from pteron.exir.export.example_check import CheckResult
from pteron.exir.memory.memory_report import MemoryReport


@dataclass(frozen=True)
class ExportReport:
    """What was exported. `str()` of it is what `pteron.export` prints.

    Attributes:
        file_bytes: size of the program file; `data_files`: names of the files beside it.
        packed_weights: whether the file brings its packed weights along.
        dynamic_extents: the symbols of the inputs' shapes with their ranges, defaults marked.
        delegation: what went to which backend, and what stayed.
        memory: planned bytes, for the largest extents.
        check: what the comparison with `exported.module()` found, or why there was none.
        seconds: time of each stage.
        notes: what a reader should know, one sentence each.
    """

    file_bytes: int
    data_files: tuple[str, ...]
    packed_weights: bool
    dynamic_extents: tuple[DynamicExtent, ...]
    delegation: DelegationReport
    memory: MemoryReport
    check: CheckResult
    seconds: Mapping[str, float]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        planned = sum(memory.planned_bytes for memory in self.memory.memories)
        packed = ", weights packed for this engine" if self.packed_weights else ""
        beside = f", with {', '.join(self.data_files)}" if self.data_files else ""
        lines = [
            f"program: {self.file_bytes:,} bytes{packed}{beside}; {planned:,} bytes of memory planned",
            self._operators(),
        ]
        lines += [f"dynamic: {extent}" for extent in self.dynamic_extents]
        lines += [f"note: {note}" for note in self.notes]
        lines.append(f"check: {self.check}")
        lines.append("seconds: " + ", ".join(f"{name} {taken:.2f}" for name, taken in self.seconds.items()))
        return "\n".join(lines)

    def _operators(self) -> str:
        if any(method.partitioners for method in self.delegation.values()):
            return self.delegation.summary()
        left = sum(len(method.left) for method in self.delegation.values())
        return f"operators: {left}, all in the runtime (no partitioner was given)"

    def to_dict(self) -> dict[str, Any]:
        """The same as dicts, lists, numbers and strings."""
        return {
            "file_bytes": self.file_bytes,
            "data_files": list(self.data_files),
            "packed_weights": self.packed_weights,
            "dynamic_extents": [asdict(extent) for extent in self.dynamic_extents],
            "delegation": self.delegation.to_dict(),
            "memory": self.memory.to_dict(),
            "check": asdict(self.check),
            "seconds": dict(self.seconds),
            "notes": list(self.notes),
        }
