"""What went to which backend, and what stayed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from torch.export.exported_program import ExportedProgram

from pteron.exir.backend.delegated_graph import get_non_lowered_nodes
from pteron.exir.backend.lowered_backend_module import get_lowered_submodules
from pteron.exir.backend.partition_calls import UNNAMED_TAGS
from pteron.exir.edge.control_flow import graph_modules


@dataclass
class DelegateSummary:
    """One delegate call: its lowered module's name, its backend, and how often each operator occurs in it."""

    name: str
    backend_id: str
    operators: dict[str, int]


@dataclass
class DelegationReport:
    """Where the operators of one method went. `str(report)` is a table.

    Attributes:
        delegates: one entry per delegate call, branches included.
        remaining: operator to count, for those that the runtime executes.
        unnamed_tags: node name to tag, for nodes that a partitioner tagged without saying where the tag goes;
            they were left to the runtime.
    """

    delegates: list[DelegateSummary] = field(default_factory=list)
    remaining: dict[str, int] = field(default_factory=dict)
    unnamed_tags: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [
            f"{len(self.delegates)} delegate calls, {sum(self.remaining.values())} operators in the runtime"
        ]
        lines += [f"  {d.name} -> {d.backend_id}: {_counts(d.operators)}" for d in self.delegates]
        if self.remaining:
            lines.append(f"  runtime: {_counts(self.remaining)}")
        for node, tag in self.unnamed_tags.items():
            lines.append(f"  {node}: tag {tag!r} is not in partition_tags; left to the runtime")
        return "\n".join(lines)


def delegation_report(program: ExportedProgram) -> DelegationReport:
    """Reads the report off a program that went through `to_backend`."""
    report = DelegationReport(unnamed_tags=dict(program.graph_module.meta.get(UNNAMED_TAGS, {})))
    remaining: Counter[str] = Counter()
    for module in graph_modules(program.graph_module):
        for name, lowered, _ in get_lowered_submodules(module):
            operators = _operators(lowered.original_module.graph.nodes)
            report.delegates.append(DelegateSummary(name, lowered.backend_id, dict(operators)))
        remaining += _operators(get_non_lowered_nodes(module.graph))
    report.remaining = dict(remaining)
    return report


def _operators(nodes: object) -> Counter[str]:
    listed = [node for node in nodes if node.op == "call_function"]  # type: ignore[attr-defined]
    return Counter(str(getattr(node.target, "__name__", node.target)) for node in listed)


def _counts(operators: dict[str, int]) -> str:
    return ", ".join(f"{name} x{count}" if count > 1 else name for name, count in operators.items())
