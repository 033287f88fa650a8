"""Lets partitioners say why a node stayed with the runtime."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import torch
from torch.fx.passes.operator_support import OperatorSupportBase

from pteron.exir.backend.text_table import text_table

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
