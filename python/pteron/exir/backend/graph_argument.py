"""How a node appears in the signature of an exported program."""

from __future__ import annotations

import torch
from torch.export.graph_signature import (
    ArgumentSpec,
    ConstantArgument,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
)


def argument_for(node: torch.fx.Node) -> ArgumentSpec:
    """The signature entry for a node, by the kind of value in its `val` metadata."""
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        return TensorArgument(name=node.name)
    if isinstance(value, torch.SymInt):
        return SymIntArgument(name=node.name)
    if isinstance(value, torch.SymFloat):
        return SymFloatArgument(name=node.name)
    if isinstance(value, torch.SymBool):
        return SymBoolArgument(name=node.name)
    return ConstantArgument(name=node.name, value=value)
