"""Why nodes stayed with the runtime: what the partitioner said, else what the graph shows.

A partitioner reports to `WhyNoPartition` or `WhyNoPartitionReporter`. Reasons stand in
`node.meta["why_not_delegated"]`, one for each partitioner that passed the node over. They travel with the
node, so the report can be asked for at any time.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
import torch.utils._pytree as pytree
from torch.export.exported_program import ExportedProgram
from torch.fx.passes.operator_support import OperatorSupportBase

from pteron.exir.backend.partitioner import DELEGATION_TAG, Partitioner, WholeGraphPartitioner
from pteron.exir.edge.control_flow import graph_modules, is_control_flow
from pteron.exir.edge.delegate_call import is_delegate_call
from pteron.exir.edge.symbolic_ops import is_symbolic_number


def text_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table with aligned columns; columns that are numbers in every row are aligned right."""
    listed = [tuple(row) for row in rows]
    widths = [max(len(row[column]) for row in (titles, *listed)) for column in range(len(titles))]
    is_number = [all(row[column].isdecimal() for row in listed) for column in range(len(titles))]

    def line(row: Sequence[str]) -> str:
        cells = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, is_number, strict=True)
        )
        return "  ".join(cells).rstrip()

    return [line(row) for row in (tuple(titles), *listed)]


#: Key of a node's metadata: the reason that a partitioner gave for leaving it, until the delegation report
#: takes it over.
REPORTED_REASON = "reported_no_partition"


class WhyNoPartition:
    """Writes "this node was not lowered because ..." to a logger, at debug level, and to the delegation
    report.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self.logger = logger
        self.node: torch.fx.Node | None = None
        self.reason = ""

    def __call__(self, node: torch.fx.Node, reason: str) -> None:
        self.node = node
        self.reason = reason
        self.logger.debug("%s", self)
        node.meta.setdefault(REPORTED_REASON, reason)

    def __str__(self) -> str:
        return f"WhyNoPartition: Node {self.node} was not partitioned because {self.reason}."


class WhyNoPartitionReporter:
    """Collects the first reason for each node that was not lowered.

    Report nodes of the program that `Partitioner.partition` was given: the reasons then stand in
    `manager.delegation_report()` too.
    """

    def __init__(self) -> None:
        self._reasons: dict[torch.fx.Node, str] = {}

    def report_reject(self, node: torch.fx.Node, reason: str) -> None:
        """Remembers why `node` was rejected; later reasons for the same node are passed over."""
        self._reasons.setdefault(node, reason)
        node.meta.setdefault(REPORTED_REASON, reason)

    def get_table_report(self) -> str:
        """A table of node name, target, torch function and reason."""
        rows = [
            (
                node.name,
                str(getattr(node.target, "__name__", node.target)),
                str(node.meta.get("torch_fn", "-")),
                reason,
            )
            for node, reason in self._reasons.items()
            if node.op not in ("placeholder", "output")
        ]
        if not rows:
            return "No nodes rejected."
        return "\n".join(text_table(("Node name", "Target", "Torch func", "Reason"), rows))

    def wrap_check(self, operator_support: OperatorSupportBase, message: str) -> OperatorSupportBase:
        """The same check, which also reports the nodes it rejects with `message`."""
        return ReportRejected(operator_support, self, message)


class ReportRejected(OperatorSupportBase):
    """An operator support check that reports what it rejects."""

    def __init__(
        self, operator_support: OperatorSupportBase, reporter: WhyNoPartitionReporter, message: str
    ) -> None:
        self.operator_support = operator_support
        self.reporter = reporter
        self.message = message

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: torch.fx.Node) -> bool:
        """What the wrapped check says."""
        is_supported = self.operator_support.is_node_supported(submodules, node)
        if not is_supported:
            self.reporter.report_reject(node, self.message)
        return is_supported


#: Key of a node's metadata: a tuple of reasons.
WHY_NOT_DELEGATED = "why_not_delegated"
#: Key of the graph module's metadata: names of the partitioners that have run over the program.
PARTITIONED_BY = "partitioned_by"

NOBODY_WAS_ASKED = "no partitioner was given for this method"
NUMBER = "it computes a number, and delegates return tensors only"
NEW_NODE = "it was not there when the partitioners ran"


def is_operator_call(node: torch.fx.Node) -> bool:
    """Whether the runtime executes `node` itself: no delegate call, and no pick from a list of results."""
    return node.op == "call_function" and node.target is not operator.getitem and not is_delegate_call(node)


def operator_name(node: torch.fx.Node) -> str:
    """The name of what a node calls, such as `aten.add.Tensor`."""
    return str(getattr(node.target, "__name__", node.target))


def explain_leftovers(program: ExportedProgram, partitioner: Partitioner) -> None:
    """Notes on every node of the tagged `program` that `partitioner` left to the runtime why it did, in
    branches too.
    """
    who = _name_of(partitioner)
    meta = program.graph_module.meta
    meta[PARTITIONED_BY] = (*meta.get(PARTITIONED_BY, ()), who)
    modules = list(graph_modules(program.graph_module))
    taken = _Taken.of(node for module in modules for node in module.graph.nodes)
    for module in modules:
        for node in module.graph.nodes:
            reported = node.meta.pop(REPORTED_REASON, None)
            if not is_operator_call(node) or DELEGATION_TAG in node.meta:
                continue
            known = node.meta.get(WHY_NOT_DELEGATED, ())
            entry = f"{who}: {_computed_reason(node, taken) if reported is None else reported}"
            if entry not in known:
                node.meta[WHY_NOT_DELEGATED] = (*known, entry)


def _name_of(partitioner: Partitioner) -> str:
    if isinstance(partitioner, WholeGraphPartitioner):
        return f"{type(partitioner).__name__}({partitioner.delegation_spec.backend_id})"
    return type(partitioner).__name__


@dataclass
class _Taken:
    """What a partitioner took: for each operator the element types, and whether a dynamic shape was among
    them.
    """

    dtypes: dict[str, set[frozenset[torch.dtype]]] = field(default_factory=dict)
    has_dynamic: dict[str, bool] = field(default_factory=dict)

    @classmethod
    def of(cls, nodes: Iterable[torch.fx.Node]) -> _Taken:
        taken = cls()
        for node in nodes:
            if is_operator_call(node) and DELEGATION_TAG in node.meta:
                name = operator_name(node)
                taken.dtypes.setdefault(name, set()).add(_dtypes(node))
                taken.has_dynamic[name] = taken.has_dynamic.get(name, False) or _is_dynamic(node)
        return taken


def _computed_reason(node: torch.fx.Node, taken: _Taken) -> str:
    name = operator_name(node)
    if is_control_flow(node):
        return "control flow runs in the runtime; its bodies are partitioned by themselves"
    if is_symbolic_number(node.meta.get("val")):
        return NUMBER
    if name not in taken.dtypes:
        return "no backend claims it"
    if _dtypes(node) not in taken.dtypes[name]:
        others = " or ".join(sorted(map(_listed, taken.dtypes[name])))
        return f"dtype: it is taken with {others} elsewhere, here it has {_listed(_dtypes(node))}"
    if _is_dynamic(node) and not taken.has_dynamic[name]:
        return "dynamic shape: it is taken with static shapes elsewhere"
    tag = _cyclic_neighbour(node)
    if tag is not None:
        return f"would make a cycle: partition {tag!r} beside it also depends on it through nodes outside"
    return "it is taken elsewhere; the partitioner gave no reason"


def _tensors(node: torch.fx.Node) -> Iterator[torch.Tensor]:
    for each in (*node.all_input_nodes, node):
        for value in pytree.tree_leaves(each.meta.get("val")):
            if isinstance(value, torch.Tensor):
                yield value


def _dtypes(node: torch.fx.Node) -> frozenset[torch.dtype]:
    return frozenset(value.dtype for value in _tensors(node))


def _listed(dtypes: frozenset[torch.dtype]) -> str:
    return ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))


def _is_dynamic(node: torch.fx.Node) -> bool:
    return any(isinstance(extent, torch.SymInt) for value in _tensors(node) for extent in value.shape)


def _cyclic_neighbour(node: torch.fx.Node) -> str | None:
    """The tag of a partition beside `node` that could not have taken it without depending on itself."""
    beside = {n.meta[DELEGATION_TAG]: None for n in node.all_input_nodes if DELEGATION_TAG in n.meta}
    beside |= {n.meta[DELEGATION_TAG]: None for n in node.users if DELEGATION_TAG in n.meta}
    for tag in beside:
        if _leads_back(node, tag, forward=True) or _leads_back(node, tag, forward=False):
            return str(tag)
    return None


def _leads_back(node: torch.fx.Node, tag: str, *, forward: bool) -> bool:
    """Whether a path from `node` leaves the partition's neighbourhood and reaches the partition again."""

    def following(each: torch.fx.Node) -> Iterable[torch.fx.Node]:
        return each.users if forward else each.all_input_nodes

    waiting = [each for each in following(node) if each.meta.get(DELEGATION_TAG) != tag]
    seen = set(waiting)
    while waiting:
        for each in following(waiting.pop()):
            if each.meta.get(DELEGATION_TAG) == tag:
                return True
            if each not in seen:
                seen.add(each)
                waiting.append(each)
    return False
