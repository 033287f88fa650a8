"""What went to which backend, what stayed in the runtime, and why."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export.exported_program import ExportedProgram

from pteron.exir.backend.lowered_backend_module import LoweredBackendModule, get_lowered_submodules
from pteron.exir.backend.partition_calls import UNNAMED_TAGS
from pteron.exir.backend.partition_report import (
    NEW_NODE,
    NOBODY_WAS_ASKED,
    NUMBER,
    PARTITIONED_BY,
    WHY_NOT_DELEGATED,
    is_operator_call,
    operator_name,
    text_table,
)
from pteron.exir.edge.control_flow import graph_modules
from pteron.exir.edge.source_location import source_location
from pteron.exir.edge.symbolic_ops import is_symbolic_number

_MOST_IN_SUMMARY = 3


@dataclass(frozen=True)
class ReportedNode:
    """One operator call: its node, its operator, and its line in the model.

    `reason`: why it stayed in the runtime; empty for a delegated node.
    """

    node: str
    operator: str
    source_line: str
    reason: str = ""


@dataclass
class DelegateSummary:
    """One delegate call: its lowered module's name, its backend, and the operators in it."""

    name: str
    backend_id: str
    nodes: list[ReportedNode] = field(default_factory=list)

    @property
    def operators(self) -> dict[str, int]:
        """How often each operator occurs in it."""
        return dict(Counter(node.operator for node in self.nodes))


@dataclass
class MethodDelegationReport:
    """Where the operators of one method went. `str(report)` is a table.

    Attributes:
        delegates: one entry per delegate call, branches included.
        left: every operator call that the runtime executes, with the reason.
        unnamed_tags: node name to tag, for nodes that a partitioner tagged without saying where the tag goes;
            they were left to the runtime.
        partitioners: names of the partitioners that ran.
    """

    delegates: list[DelegateSummary] = field(default_factory=list)
    left: list[ReportedNode] = field(default_factory=list)
    unnamed_tags: dict[str, str] = field(default_factory=dict)
    partitioners: tuple[str, ...] = ()

    @property
    def remaining(self) -> dict[str, int]:
        """Operator to count, for those that the runtime executes."""
        return dict(Counter(node.operator for node in self.left))

    @property
    def backends(self) -> dict[str, tuple[int, int]]:
        """Backend to (number of delegate calls, number of operators in them)."""
        found: dict[str, tuple[int, int]] = {}
        for delegate in self.delegates:
            calls, nodes = found.get(delegate.backend_id, (0, 0))
            found[delegate.backend_id] = (calls + 1, nodes + len(delegate.nodes))
        return found

    @property
    def num_delegated_nodes(self) -> int:
        """Operators in delegates."""
        return sum(len(delegate.nodes) for delegate in self.delegates)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain dicts and lists, for JSON."""
        return {
            "backends": {
                name: {"delegates": calls, "nodes": nodes} for name, (calls, nodes) in self.backends.items()
            },
            "delegates": [
                {"name": d.name, "backend": d.backend_id, "operators": d.operators} for d in self.delegates
            ],
            "runtime": {
                "nodes": len(self.left),
                "operators": [
                    {
                        "operator": name,
                        "count": len(nodes),
                        "reason": reason,
                        "source_lines": _distinct_lines(nodes),
                    }
                    for (name, reason), nodes in self._by_operator_and_reason().items()
                ],
            },
            "unnamed_tags": dict(self.unnamed_tags),
            "partitioners": list(self.partitioners),
        }

    def __str__(self) -> str:
        inside = _counted(self.num_delegated_nodes, "operator")
        outside = _counted(len(self.left), "operator")
        lines = [f"{_counted(len(self.delegates), 'delegate')} with {inside}, {outside} in the runtime"]
        if self.delegates:
            rows = [(d.name, d.backend_id, str(len(d.nodes)), _counts(d.operators)) for d in self.delegates]
            lines += text_table(("delegate", "backend", "nodes", "operators"), rows)
        if self.left:
            rows = [
                (name, str(len(nodes)), reason, _shown_lines(nodes))
                for (name, reason), nodes in self._by_operator_and_reason().items()
            ]
            lines += text_table(("in the runtime", "count", "reason", "source"), rows)
        return "\n".join(lines)

    def _by_operator_and_reason(self) -> dict[tuple[str, str], list[ReportedNode]]:
        groups: dict[tuple[str, str], list[ReportedNode]] = {}
        for node in self.left:
            groups.setdefault((node.operator, node.reason), []).append(node)
        return dict(sorted(groups.items(), key=lambda group: -len(group[1])))


class DelegationReport(Mapping[str, MethodDelegationReport]):
    """The reports of all methods of a program, by method name. `str(report)` is a table for each."""

    def __init__(self, methods: Mapping[str, MethodDelegationReport]) -> None:
        self._methods = dict(methods)

    def __getitem__(self, method: str) -> MethodDelegationReport:
        return self._methods[method]

    def __iter__(self) -> Iterator[str]:
        return iter(self._methods)

    def __len__(self) -> int:
        return len(self._methods)

    def __repr__(self) -> str:
        return f"<DelegationReport of {', '.join(self._methods)}>"

    def __str__(self) -> str:
        return "\n\n".join(f"method {name!r}: {report}" for name, report in self._methods.items())

    def summary(self) -> str:
        """One line: how much went to which backend, and what stayed most often, with the reason."""
        backends: Counter[str] = Counter()
        for report in self._methods.values():
            backends.update({name: nodes for name, (_, nodes) in report.backends.items()})
        left = [node for report in self._methods.values() for node in report.left]
        went = ", ".join(f"{count} to {name}" for name, count in backends.items()) or "none to a backend"
        total = sum(backends.values()) + len(left)
        line = f"delegation: of {_counted(total, 'operator')} {went}, {len(left)} to the runtime"
        groups = Counter((node.operator, node.reason) for node in left).most_common()
        shown = [f"{name} x{n} ({reason})" for (name, reason), n in groups[:_MOST_IN_SUMMARY]]
        if len(groups) > _MOST_IN_SUMMARY:
            shown.append(f"{len(groups) - _MOST_IN_SUMMARY} more kinds")
        return f"{line}: {', '.join(shown)}" if shown else line

    def to_dict(self) -> dict[str, Any]:
        """`{method: report}` as plain dicts and lists."""
        return {name: report.to_dict() for name, report in self._methods.items()}

    def to_json(self, indent: int | None = None) -> str:
        """`to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False)

    def rows(self) -> list[dict[str, Any]]:
        """One dict per operator call, delegated or not: method, place ("runtime" or the backend), delegate
        (its name, None in the runtime), node, operator, reason, source_line.
        """
        found = []
        for method, report in self._methods.items():
            places = [(d.backend_id, d.name, node) for d in report.delegates for node in d.nodes]
            for place, delegate, node in [*places, *(("runtime", None, node) for node in report.left)]:
                found.append(
                    {
                        "method": method,
                        "place": place,
                        "delegate": delegate,
                        "node": node.node,
                        "operator": node.operator,
                        "reason": node.reason,
                        "source_line": node.source_line,
                    }
                )
        return found

    def to_dataframe(self) -> Any:
        """`rows` as a pandas data frame.

        Raises:
            ImportError: pandas is not installed.
        """
        try:
            import pandas  # type: ignore[import-untyped,unused-ignore]
        except ModuleNotFoundError as error:
            raise ImportError(
                'a data frame needs pandas: pip install "pteron[devtools]"; rows() and to_dict() do without'
            ) from error
        return pandas.DataFrame(self.rows())


def delegation_report(program: ExportedProgram) -> MethodDelegationReport:
    """Reads the report of one method off a program that went through `to_backend`."""
    meta = program.graph_module.meta
    report = MethodDelegationReport(
        unnamed_tags=dict(meta.get(UNNAMED_TAGS, {})), partitioners=tuple(meta.get(PARTITIONED_BY, ()))
    )
    for module in graph_modules(program.graph_module):
        for name, lowered, _ in get_lowered_submodules(module):
            report.delegates.append(DelegateSummary(name, lowered.backend_id, _nodes_in(lowered)))
        for node in module.graph.nodes:
            if is_operator_call(node):
                place = str(source_location(node))
                reason = _reason(node, report.partitioners)
                report.left.append(ReportedNode(node.name, operator_name(node), place, reason))
    return report


def _reason(node: torch.fx.Node, partitioners: tuple[str, ...]) -> str:
    if not partitioners:
        return NOBODY_WAS_ASKED
    default = NUMBER if is_symbolic_number(node.meta.get("val")) else NEW_NODE
    return "; ".join(node.meta.get(WHY_NOT_DELEGATED, ())) or default


def _nodes_in(lowered: LoweredBackendModule) -> list[ReportedNode]:
    """The operators of a lowered module; those of modules nested in it count as its own."""
    found = []
    for module in graph_modules(lowered.original_module.graph_module):
        found += [
            ReportedNode(node.name, operator_name(node), str(source_location(node)))
            for node in module.graph.nodes
            if is_operator_call(node)
        ]
        for _, nested, _ in get_lowered_submodules(module):
            found += _nodes_in(nested)
    return found


def _counts(operators: Mapping[str, int]) -> str:
    return ", ".join(f"{name} x{count}" if count > 1 else name for name, count in operators.items())


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _distinct_lines(nodes: list[ReportedNode]) -> list[str]:
    return list(dict.fromkeys(node.source_line for node in nodes))


def _shown_lines(nodes: list[ReportedNode]) -> str:
    lines = _distinct_lines(nodes)
    more = f" and {len(lines) - 2} more" if len(lines) > 2 else ""
    return ", ".join(lines[:2]) + more
