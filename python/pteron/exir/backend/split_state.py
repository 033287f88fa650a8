"""Lowered modules with state whose calls would end up in different programs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from pteron.exir.backend.partitioner import DELEGATION_TAG
from pteron.exir.edge.delegate_call import is_delegate_call, lowered_module_of
from pteron.exir.edge.source_location import source_location


def refuse_split_state(modules: Sequence[torch.fx.GraphModule], tags: Collection[str]) -> None:
    """Checks that all calls of a lowered module which updates buffers of its own have the same tag, or none.

    Each program that holds such a module has a state of its own, so calls in different partitions would no
    longer see each other's updates.

    Raises:
        RuntimeError: they have not; the text names two of the calls.
    """
    first: dict[int, torch.fx.Node] = {}
    for module in modules:
        for node in module.graph.nodes:
            if not is_delegate_call(node):
                continue
            lowered = lowered_module_of(node)
            state = lowered.original_module.graph_signature.buffers_to_mutate.values()
            if not state:
                continue
            known = first.setdefault(id(lowered), node)
            here, there = (_tag(each, tags) for each in (node, known))
            if here != there:
                raise RuntimeError(
                    f"{known} and {node} call one lowered module that keeps state "
                    f"({', '.join(sorted(state))}), but have different tags ({there!r} and {here!r}): each "
                    "partition would have a state of its own. Give both calls the same tag, or none; the "
                    f"second is from {source_location(node)}"
                )


def _tag(node: torch.fx.Node, tags: Collection[str]) -> str | None:
    tag = node.meta.get(DELEGATION_TAG)
    return tag if tag in tags else None
