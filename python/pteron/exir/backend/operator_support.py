"""Checks that keep chosen nodes out of partitions; chain them with a backend's own support check."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch.fx.passes.operator_support import OperatorSupportBase

from pteron.exir.backend.partition_report import REPORTED_REASON


def _matches(is_exact: bool, wanted: str | None, found: str) -> bool:
    if not wanted:
        return False
    return wanted == found if is_exact else wanted in found


class DontSupportBase(OperatorSupportBase):
    """Supports every node but those it rejects, and remembers these."""

    def __init__(self) -> None:
        self._rejected: list[torch.fx.Node] = []

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: torch.fx.Node) -> bool:
        """False, and remembered, for a node that this check rejects."""
        if self._is_rejected(node):
            self.reject_node(node)
            return False
        return True

    def reject_node(self, node: torch.fx.Node) -> None:
        """Remembers `node` as rejected; the delegation report names this check as the reason."""
        node.meta.setdefault(REPORTED_REASON, f"rejected by {type(self).__name__}")
        if node not in self._rejected:
            self._rejected.append(node)

    def rejected_nodes(self) -> list[torch.fx.Node]:
        """The nodes rejected so far."""
        return self._rejected

    def has_rejected_node(self) -> bool:
        """Whether a node was rejected."""
        return bool(self._rejected)

    def num_rejected(self) -> int:
        """How many nodes were rejected."""
        return len(self._rejected)

    @abstractmethod
    def _is_rejected(self, node: torch.fx.Node) -> bool:
        """Whether this filter rejects `node`."""


class DontPartition(DontSupportBase):
    """Rejects operators: edge or ATen overloads, or their names (parts of names with `exact=False`)."""

    def __init__(self, *targets: Any, exact: bool = True) -> None:
        super().__init__()
        self.targets = targets
        self.exact = exact

    def _is_rejected(self, node: torch.fx.Node) -> bool:
        if node.target in self.targets:
            return True
        names = [str(getattr(node.target, "__name__", node.target)), str(node.meta.get("original_aten", ""))]
        return any(_matches(self.exact, str(target), name) for target in self.targets for name in names)


class DontPartitionName(DontSupportBase):
    """Rejects nodes by name (part of a name with `exact=False`)."""

    def __init__(self, *targets: str, exact: bool = True) -> None:
        super().__init__()
        self.targets = targets
        self.exact = exact

    def _is_rejected(self, node: torch.fx.Node) -> bool:
        return any(_matches(self.exact, target, node.name) for target in self.targets)


class DontPartitionModule(DontSupportBase):
    """Rejects nodes by the module they come from: its class (`module_name`) or its path (`instance_name`).

    A class name without a dot is compared with the last part of the full class name.
    """

    def __init__(
        self, *, module_name: str | None = None, instance_name: str | None = None, exact: bool = True
    ) -> None:
        super().__init__()
        self.module_name = module_name
        self.instance_name = instance_name
        self.exact = exact

    def _is_rejected(self, node: torch.fx.Node) -> bool:
        for path, class_name in node.meta.get("nn_module_stack", {}).values():
            full = (
                class_name
                if isinstance(class_name, str)
                else f"{class_name.__module__}.{class_name.__qualname__}"
            )
            shown = full if self.module_name and "." in self.module_name else full.rsplit(".", 1)[-1]
            if _matches(self.exact, self.instance_name, path) or _matches(
                self.exact, self.module_name, shown
            ):
                return True
        return False
