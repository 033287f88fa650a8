"""What calls may be moved, merged or dropped: pure ones, and copies whose readers may read the source."""

from __future__ import annotations

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram

from pteron.exir.edge.control_flow import graph_modules
from pteron.exir.edge.dim_order_ops import LIBRARY_NAMESPACE
from pteron.exir.edge.edge_op_overload import EdgeOpOverload
from pteron.exir.passes.constant_values import written_operands


def written_nodes(program: ExportedProgram) -> set[torch.fx.Node]:
    """Every node of `program` into whose memory a call writes."""
    return {
        operand
        for module in graph_modules(program.graph_module)
        for node in module.graph.nodes
        for operand in written_operands(node)
    }


def may_share_memory(copy: torch.fx.Node, source: torch.fx.Node, written: set[torch.fx.Node]) -> bool:
    """Whether the readers of `copy` may read `source` in its place, which holds the same values.

    Not where the copy is returned (each output has memory of its own), where one of the two is written to
    later (the copy holds the value from before), or where the copy feeds a call that writes.
    """
    if source in written or copy in written:
        return False
    return not any(user.op == "output" or written_operands(user) for user in copy.users)


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
