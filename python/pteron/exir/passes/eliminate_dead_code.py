"""Remove nodes whose result nobody reads."""

from __future__ import annotations

import torch

from pteron.exir.edge.delegate_call import is_delegate_call
from pteron.exir.passes.exported_program_pass import each_graph


def _must_stay(node: torch.fx.Node) -> bool:
    # A delegate may own state that it updates, so its call stays even when no result is read.
    return node.op in ("placeholder", "output") or is_delegate_call(node) or node.is_impure()


@each_graph
def eliminate_dead_code(module: torch.fx.GraphModule) -> None:
    """Remove unread nodes without effects from `program`, in place; placeholders stay, they are its
    signature.
    """
    if module.graph.eliminate_dead_code(_must_stay):
        module.recompile()
