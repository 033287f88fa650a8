"""State a `TensorSpec` for every tensor of a graph."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx.passes.infra.pass_base import PassBase, PassResult
from torch.utils._pytree import tree_map

from pteron.exir.edge.extent_bounds import Ranges
from pteron.exir.edge.memory_nodes import view
from pteron.exir.edge.tensor_spec import TensorSpec


def spec_of(value: Any, ranges: Ranges | None = None) -> Any:
    """`value` with a `TensorSpec` in place of each tensor."""
    return tree_map(
        lambda leaf: TensorSpec.from_value(leaf, ranges) if isinstance(leaf, torch.Tensor) else leaf, value
    )


class SpecPropPass(PassBase):
    """Sets `meta["spec"]` of every placeholder and call: the shape of `meta["val"]`, tensors as `TensorSpec`.

    A `getitem` gets the very spec object of the result that it picks, an in-place operator that of the
    tensor it changes, so one tensor has one spec. Views get a spec whose `base` is the spec of what they
    view.

    `ranges`: symbol → range; without it each symbol's own shape environment is asked.
    """

    def __init__(self, ranges: Ranges | None = None) -> None:
        super().__init__()
        self._ranges = ranges

    def call(self, graph_module: torch.fx.GraphModule) -> PassResult:
        """Run over the top-level graph of `graph_module`, in place."""
        for node in graph_module.graph.nodes:
            if node.op in ("placeholder", "call_function") and "val" in node.meta:
                node.meta["spec"] = self._spec(node)
        return PassResult(graph_module, True)

    def _spec(self, node: torch.fx.Node) -> Any:
        if node.target is operator.getitem:
            source, index = node.args
            assert isinstance(source, torch.fx.Node)
            return source.meta["spec"][index]
        if node.target is torch.ops.aten.copy_.default:
            changed = node.args[0]
            assert isinstance(changed, torch.fx.Node)
            return changed.meta["spec"]
        spec = spec_of(node.meta["val"], self._ranges)
        if node.target is view:
            base = node.args[0]
            assert isinstance(base, torch.fx.Node)
            spec.base = base.meta["spec"]
        return spec
