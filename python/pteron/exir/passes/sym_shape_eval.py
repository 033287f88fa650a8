"""Extents of specs as numbers: upper bounds, or values on the example inputs."""

from __future__ import annotations

import torch
from torch.fx.passes.infra.pass_base import PassBase, PassResult

from pteron.exir.edge.control_flow import graph_modules
from pteron.exir.edge.extent_bounds import value_on_example
from pteron.exir.edge.tensor_spec import TensorSpec
from pteron.exir.memory.spec_lifetimes import specs_in


class ConstraintBasedSymShapeEvalPass(PassBase):
    """Sets extents that vary to their upper bounds: specs here state nothing else, so nothing changes."""

    def call(self, graph_module: torch.fx.GraphModule) -> PassResult:
        """Check that every extent is a number."""
        for spec in _specs(graph_module):
            if not all(isinstance(extent, int) for extent in spec.shape):
                raise RuntimeError(f"Cannot evaluate the shape upper bound of {spec}")
        return PassResult(graph_module, True)


class HintBasedSymShapeEvalPass(PassBase):
    """Sets extents that vary to their values on the example inputs, for partitioners that want numbers."""

    def call(self, graph_module: torch.fx.GraphModule) -> PassResult:
        """Run over the specs of every graph, in place."""
        for spec in _specs(graph_module):
            known = [value_on_example(extent) for extent in spec.extents]
            spec.shape = [
                bound if value is None else value for value, bound in zip(known, spec.shape, strict=True)
            ]
        return PassResult(graph_module, True)


def _specs(graph_module: torch.fx.GraphModule) -> list[TensorSpec]:
    found: list[TensorSpec] = []
    for module in graph_modules(graph_module):
        for node in module.graph.nodes:
            found.extend(specs_in(node.meta.get("spec")))
    return found
