"""How well a plan uses memory, and what needs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram

from pteron.exir.edge.memory_nodes import alloc
from pteron.exir.edge.source_location import source_location
from pteron.exir.edge.tensor_spec import TensorSpec
from pteron.exir.memory.lifetime import peak
from pteron.exir.memory.memory_planning_pass import planned_lifetimes
from pteron.exir.memory.spec_lifetimes import execution_order, specs_in

_MOST_SHOWN = 10


@dataclass(frozen=True)
class TensorAtPeak:
    """One tensor in use when a method needs most memory: what made it, and the line of the model."""

    nbytes: int
    dtype: str
    shape: tuple[int, ...]
    made_by: str
    source_line: str


@dataclass(frozen=True)
class MemoryUse:
    """One memory of one method.

    `planned_bytes`: its size. `lower_bound`: bytes that any plan needs, the largest sum of sizes in use at
    one instruction. `peak_at`: that instruction. `at_peak`: the tensors then, the largest first.
    """

    method: str
    memory_id: int
    planned_bytes: int
    lower_bound: int
    peak_at: str
    at_peak: tuple[TensorAtPeak, ...]

    @property
    def ratio(self) -> float:
        """Planned bytes by the lower bound; 1.0 for a memory that nothing needs."""
        return self.planned_bytes / self.lower_bound if self.lower_bound else 1.0

    def __str__(self) -> str:
        head = (
            f"method {self.method}, memory {self.memory_id}: {self.planned_bytes:,} bytes planned, lower "
            f"bound {self.lower_bound:,} ({self.ratio:.3f}x)"
        )
        if not self.at_peak:
            return head
        lines = [f"{head}, reached at {self.peak_at}"]
        for tensor in self.at_peak[:_MOST_SHOWN]:
            shape = ", ".join(map(str, tensor.shape))
            lines.append(
                f"  {tensor.nbytes:>13,}  {tensor.dtype}[{shape}]  {tensor.made_by}  {tensor.source_line}"
            )
        rest = self.at_peak[_MOST_SHOWN:]
        if rest:
            lines.append(f"  {sum(tensor.nbytes for tensor in rest):>13,}  in {len(rest)} smaller tensors")
        return "\n".join(lines)


@dataclass(frozen=True)
class MemoryReport:
    """The memories of a program, in order of method and memory id. `str()` of it is a table."""

    memories: tuple[MemoryUse, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.memories)) or "no method plans memory"

    def to_dict(self) -> dict[str, Any]:
        """The same as dicts, lists, numbers and strings."""
        return {"memories": [{**asdict(memory), "ratio": memory.ratio} for memory in self.memories]}


def memory_report(methods: Mapping[str, tuple[ExportedProgram, Sequence[int], int]]) -> MemoryReport:
    """The report of planned methods: name → (program, sizes of its memories in bytes, alignment in bytes)."""
    return MemoryReport(
        tuple(
            use
            for name, (program, sizes, alignment) in sorted(methods.items())
            for use in _memories(name, program, sizes, alignment)
        )
    )


def _memories(method: str, program: ExportedProgram, sizes: Sequence[int], alignment: int) -> list[MemoryUse]:
    lifetimes = planned_lifetimes(program)
    order = execution_order(program.graph_module.graph)
    makers = _makers(order)
    found = []
    for memory_id in range(1, len(sizes)):
        specs = [spec for spec in lifetimes if spec.memory_id == memory_id]
        if not specs and not sizes[memory_id]:
            continue
        bound, where = peak([lifetimes[spec] for spec in specs], alignment)
        then = [spec for spec in specs if lifetimes[spec].first <= where <= lifetimes[spec].last]
        found.append(
            MemoryUse(
                method=method,
                memory_id=memory_id,
                planned_bytes=sizes[memory_id],
                lower_bound=bound,
                peak_at=_described(order[where:]),
                at_peak=tuple(
                    _at_peak(spec, makers) for spec in sorted(then, key=lambda spec: -spec.nbytes())
                ),
            )
        )
    return found


def _makers(order: Sequence[torch.fx.Node]) -> dict[TensorSpec, torch.fx.Node]:
    """The node that makes each tensor that owns memory; an allocation is named only where nothing uses it."""
    makers: dict[TensorSpec, torch.fx.Node] = {}
    for node in order:
        for spec in specs_in(node.meta.get("spec")):
            known = makers.get(spec)
            if spec.base is None and (known is None or known in node.all_input_nodes):
                makers[spec] = node
    return makers


def _at_peak(spec: TensorSpec, makers: Mapping[TensorSpec, torch.fx.Node]) -> TensorAtPeak:
    maker = makers[spec]
    return TensorAtPeak(
        nbytes=spec.nbytes(),
        dtype=str(spec.dtype).removeprefix("torch."),
        shape=tuple(spec.shape),
        made_by=_name(maker),
        source_line=str(source_location(maker)),
    )


def _described(rest: Sequence[torch.fx.Node]) -> str:
    """Names the first instruction among nodes; room for its results is made just before it."""
    node = next((node for node in rest if node.target is not alloc), rest[-1])
    if node.op == "call_function":
        return f"{_name(node)} ({source_location(node)})"
    return f"the method's {'start' if node.op == 'placeholder' else 'end'}"


def _name(node: torch.fx.Node) -> str:
    if node.op == "placeholder":
        return node.name
    return str(node.target) if isinstance(node.target, OpOverload) else getattr(node.target, "__name__", "?")
