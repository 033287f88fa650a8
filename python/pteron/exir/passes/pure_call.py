"""Which calls compute the same result every time, from their arguments alone."""

from __future__ import annotations

import torch
from torch._ops import OpOverload

from pteron.exir.edge.dim_order_ops import LIBRARY_NAMESPACE
from pteron.exir.edge.edge_op_overload import EdgeOpOverload

# Operators of other namespaces may state their effects wrongly, and quantising ones are patterns that
# kernels look for.
_NAMESPACES = frozenset({"aten", LIBRARY_NAMESPACE})
_UNDEFINED_CONTENTS = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "_empty_dim_order"})


def is_pure_call(node: torch.fx.Node) -> bool:
    """Whether `node` is a functional, deterministic PyTorch operator, free to be computed elsewhere or once.

    Not: random operators, operators that write, uninitialised memory, quantise and dequantise, control flow,
    delegates.
    """
    op = node.target.aten_overload if isinstance(node.target, EdgeOpOverload) else node.target
    return (
        node.op == "call_function"
        and isinstance(op, OpOverload)
        and op.namespace in _NAMESPACES
        and torch.Tag.nondeterministic_seeded not in op.tags
        and not op._schema.is_mutable
        and op._schema.name.split("::")[1] not in _UNDEFINED_CONTENTS
    )
