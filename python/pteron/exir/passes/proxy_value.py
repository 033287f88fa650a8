"""What the hooks of a pass are given: values, and what travels with a node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from pteron.errors import ExportError

# A pass that set them would make the graph say something about a node that its operator does not do.
PROTECTED_KEYS = frozenset({"val", "stack_trace", "nn_module_stack", "debug_handle", "tensor_meta"})


class ExportPassBaseError(ExportError, RuntimeError):
    """A pass asked for something that a traced value or a node does not allow."""


class NodeMetadata:
    """The `meta` of a node, copied. New keys can be set; those that tracing sets itself cannot."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = dict(data)

    def __getitem__(self, key: str) -> Any:
        return self.data[key]

    def __setitem__(self, key: str, value: Any) -> None:
        if key in PROTECTED_KEYS:
            raise ExportPassBaseError(
                f"meta[{key!r}] is set by the pass machinery and cannot be set by a pass",
                argument=key,
                hint="use a key of your own",
            )
        self.data[key] = value

    def __contains__(self, key: object) -> bool:
        return key in self.data

    def copy(self) -> NodeMetadata:
        """A copy that can be changed by itself."""
        return NodeMetadata(self.data)


class ProxyValue:
    """`data` is a fake tensor, a number or symbolic number, or a tuple of such; `node` computes it in the new
    graph.

    Raises `ExportPassBaseError` where a symbolic number is used as a Python number: its value is known at
    run time only.
    """

    def __init__(self, data: Any, proxy: torch.fx.Proxy | torch.fx.Node) -> None:
        self.data = data
        self.proxy_or_node = proxy

    @property
    def node(self) -> torch.fx.Node:
        """The node in the graph that is being built."""
        return (
            self.proxy_or_node if isinstance(self.proxy_or_node, torch.fx.Node) else self.proxy_or_node.node
        )

    @property
    def proxy(self) -> torch.fx.Proxy:
        """The `torch.fx.Proxy` of the node; `ExportPassBaseError` where the value was made from a node."""
        if not isinstance(self.proxy_or_node, torch.fx.Proxy):
            raise ExportPassBaseError(f"{self.node.format_node()} has no Proxy; use .node")
        return self.proxy_or_node

    def to_tensor(self) -> torch.Tensor:
        """The fake tensor; `ExportPassBaseError` where the value is none."""
        if not isinstance(self.data, torch.Tensor):
            raise ExportPassBaseError(
                f"{self.node.name} is no tensor", expected="a tensor", got=type(self.data).__name__
            )
        return self.data

    def is_tensor(self) -> bool:
        """Whether the value is a tensor."""
        return isinstance(self.data, torch.Tensor)

    def __iter__(self) -> Iterator[Any]:
        yield from self.data

    def __bool__(self) -> bool:
        return bool(self._number((torch.SymInt, torch.SymFloat, torch.SymBool), "used in a boolean context"))

    def __int__(self) -> int:
        return int(self._number(torch.SymInt, "converted to int"))

    def __float__(self) -> float:
        return float(self._number(torch.SymFloat, "converted to float"))

    def __index__(self) -> int:
        return int(self._number(torch.SymInt, "used in index context"))

    def _number(self, symbolic: type | tuple[type, ...], wanted: str) -> Any:
        if isinstance(self.data, symbolic):
            raise ExportPassBaseError(
                f"{self.node.name} is a symbolic number ({self.data}), so it cannot be {wanted} here",
                hint="let an operator of the graph compute with it",
            )
        return self.data
