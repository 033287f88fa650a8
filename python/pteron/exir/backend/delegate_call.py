"""The operator that stands for "run this lowered module here": `executorch_call_delegate`.

It is the higher-order operator that PyTorch itself ships under this name, so that graphs holding it are
understood by other tools, and a program that also imports `executorch` sees one operator, not two.
"""

from __future__ import annotations

import operator

import torch
from torch._higher_order_ops.executorch_call_delegate import executorch_call_delegate as _call_delegate
from torch._higher_order_ops.executorch_call_delegate import get_lowered_module_name as _attach
from torch._higher_order_ops.executorch_call_delegate import is_lowered_module

from pteron.exir.edge.delegate_call import is_delegate_call

__all__ = [
    "attach_lowered_module",
    "executorch_call_delegate",
    "get_lowered_module_name",
    "is_delegate_call",
    "is_delegate_output",
    "is_lowered_module",
]

executorch_call_delegate = _call_delegate

# A delegate may own mutable state, so a call whose outputs nobody reads still does something.
torch.fx.node.has_side_effect(executorch_call_delegate)


def attach_lowered_module(root: torch.nn.Module, lowered_module: torch.nn.Module) -> str:
    """Adds `lowered_module` to `root` under the first free name `lowered_module_<n>` and returns that
    name.
    """
    name: str = _attach(root, lowered_module)
    return name


get_lowered_module_name = attach_lowered_module


def is_delegate_output(node: torch.fx.Node) -> bool:
    """Whether `node` picks one output of a delegate call."""
    if node.op != "call_function" or node.target is not operator.getitem or not node.args:
        return False
    source = node.args[0]
    return isinstance(source, torch.fx.Node) and is_delegate_call(source)
