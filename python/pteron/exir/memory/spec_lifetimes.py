"""Lifetimes of the tensors of a graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from pteron.exir.edge.delegate_call import is_delegate_call
from pteron.exir.edge.tensor_spec import TensorSpec


def specs_in(tree: Any) -> Iterator[TensorSpec]:
    """Every `TensorSpec` in a nest of lists and tuples."""
    for leaf in tree_leaves(tree, is_leaf=lambda node: isinstance(node, TensorSpec)):
        if isinstance(leaf, TensorSpec):
            yield leaf


def spec_lifetimes(
    graph: torch.fx.Graph, always_alive: frozenset[TensorSpec]
) -> dict[TensorSpec, tuple[int, int]]:
    """(first, last) node index at which each tensor that owns memory is in use.

    A view counts as a use of what it views. Placeholders live from index 0, returned tensors to the end,
    those in `always_alive` (state that a later run reads) throughout.
    """
    nodes = list(graph.nodes)
    end = len(nodes)
    lifetimes: dict[TensorSpec, tuple[int, int]] = {}

    def use(spec: TensorSpec, index: int) -> None:
        first, last = lifetimes.get(spec.root, (index, index))
        lifetimes[spec.root] = (min(first, index), max(last, index))

    for index, node in enumerate(nodes):
        if node.op == "output":
            for operand in node.all_input_nodes:
                for spec in specs_in(operand.meta.get("spec")):
                    use(spec, end)
            continue
        at = 0 if node.op == "placeholder" else index
        for spec in specs_in(node.meta.get("spec")):
            use(spec, at)
        for operand in node.all_input_nodes:
            for spec in specs_in(operand.meta.get("spec")):
                use(spec, index)
        # What a delegate does not fill for anyone still needs a place while it runs.
        if is_delegate_call(node):
            for spec in specs_in(node.meta.get("spec")):
                use(spec, index)
    for spec in always_alive:
        lifetimes[spec.root] = (0, end)
    return lifetimes
