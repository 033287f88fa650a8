"""Counts of delegated and other nodes, in the form in which ExecuTorch's developer tools give them.

`EdgeProgramManager.delegation_report()` says more: reasons, source lines, branches, several methods.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import torch

from pteron.exir.backend.lowered_backend_module import get_lowered_submodules
from pteron.exir.backend.partition_report import text_table
from pteron.exir.edge.delegate_call import is_delegate_call

_COLUMNS = ("op_type", "occurrences_in_delegated_graphs", "occurrences_in_non_delegated_graphs")


@dataclass
class DelegationBreakdown:
    """How often one kind of node is in delegates and outside of them."""

    op_type: str = ""
    delegated: int = 0
    non_delegated: int = 0


@dataclass
class DelegationInfo:
    """Counts of one graph, without its branches.

    Attributes:
        num_delegated_subgraphs: delegate calls.
        num_delegated_nodes: calls in their graphs.
        num_non_delegated_nodes: other calls, picks of results among them.
        delegation_by_operator: kind of node (its name without a number at the end) to counts.
    """

    num_delegated_subgraphs: int = 0
    num_delegated_nodes: int = 0
    num_non_delegated_nodes: int = 0
    delegation_by_operator: dict[str, DelegationBreakdown] = field(default_factory=dict)

    def get_summary(self) -> str:
        """The three counts as text."""
        return (
            f"Total delegated subgraphs: {self.num_delegated_subgraphs}\n"
            f"Number of delegated nodes: {self.num_delegated_nodes}\n"
            f"Number of non-delegated nodes: {self.num_non_delegated_nodes}\n"
        )

    def rows(self) -> list[tuple[str, int, int]]:
        """(kind, in delegates, outside) sorted by kind, and the totals as the last row."""
        found = [(b.op_type, b.delegated, b.non_delegated) for b in self.delegation_by_operator.values()]
        return [*sorted(found), ("Total", self.num_delegated_nodes, self.num_non_delegated_nodes)]

    def get_operator_delegation_dataframe(self) -> Any:
        """`rows` as a pandas data frame.

        Raises:
            ImportError: pandas is not installed.
        """
        try:
            import pandas  # type: ignore[import-untyped,unused-ignore]
        except ModuleNotFoundError as error:
            raise ImportError('a data frame needs pandas: pip install "pteron[devtools]"') from error
        return pandas.DataFrame(self.rows(), columns=list(_COLUMNS))


def get_delegation_info(graph_module: torch.fx.GraphModule) -> DelegationInfo:
    """Counts the nodes of a lowered graph."""
    info = DelegationInfo()
    for _, lowered, _ in get_lowered_submodules(graph_module):
        info.num_delegated_subgraphs += 1
        for node in lowered.original_module.graph.nodes:
            if node.op == "call_function":
                info.num_delegated_nodes += 1
                _breakdown(info, node).delegated += 1
    for node in graph_module.graph.nodes:
        if node.op == "call_function" and not is_delegate_call(node):
            info.num_non_delegated_nodes += 1
            _breakdown(info, node).non_delegated += 1
    return info


def print_delegation_info(graph_module: torch.fx.GraphModule) -> None:
    """Prints the counts of `get_delegation_info` as a table."""
    info = get_delegation_info(graph_module)
    print(info.get_summary())
    print("\n".join(text_table(_COLUMNS, [tuple(map(str, row)) for row in info.rows()])))


def _breakdown(info: DelegationInfo, node: torch.fx.Node) -> DelegationBreakdown:
    kind = re.sub(r"_\d+$", "", node.name)
    return info.delegation_by_operator.setdefault(kind, DelegationBreakdown(kind))
