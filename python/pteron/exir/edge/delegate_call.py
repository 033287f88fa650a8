"""Recognise calls of lowered modules in a graph."""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import HigherOrderOperator

from pteron.exir.edge.control_flow import attribute_of

DELEGATE_CALL_NAME = "executorch_call_delegate"


def is_delegate_call(node: torch.fx.Node) -> bool:
    """Whether `node` calls a lowered module."""
    return (
        node.op == "call_function"
        and isinstance(node.target, HigherOrderOperator)
        and node.target.__name__ == DELEGATE_CALL_NAME
    )


def lowered_module_of(node: torch.fx.Node) -> Any:
    """The `LoweredBackendModule` that a delegate call runs. `node` must satisfy `is_delegate_call`."""
    attribute = node.args[0]
    if not isinstance(attribute, torch.fx.Node) or attribute.op != "get_attr":
        raise TypeError(
            f"delegate call {node.name}: first argument must be a get_attr node, got {attribute!r}"
        )
    return attribute_of(attribute)
