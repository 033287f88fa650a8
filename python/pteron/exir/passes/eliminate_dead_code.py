"""Remove nodes whose result nobody reads."""

from __future__ import annotations

import torch
from torch.export import ExportedProgram

from pteron.exir.edge.control_flow import graph_modules
from pteron.exir.edge.delegate_call import is_delegate_call


def _must_stay(node: torch.fx.Node) -> bool:
    # A delegate may own state that it updates, so its call stays even when no result is read.
    return node.op in ("placeholder", "output") or is_delegate_call(node) or node.is_impure()


def eliminate_dead_code(program: ExportedProgram) -> None:
    """Remove unread nodes without effects from `program`, in place; placeholders stay, they are its
    signature.
    """
    for module in graph_modules(program.graph_module):
        if module.graph.eliminate_dead_code(_must_stay):
            module.recompile()
