"""Which operands of a call an operator writes to."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch._ops import OpOverload


def written_arguments(node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """The nodes that `node` passes for arguments which its operator's schema says are written: `self` of an
    in-place operator, `out` of an out variant.
    """
    if node.op != "call_function" or not isinstance(node.target, OpOverload):
        return
    for position, argument in enumerate(node.target._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        given = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
        for value in given if isinstance(given, (list, tuple)) else (given,):
            if isinstance(value, torch.fx.Node):
                yield value
