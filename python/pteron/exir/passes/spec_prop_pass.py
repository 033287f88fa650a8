"""State a `TensorSpec` for every tensor of a graph."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx.passes.infra.pass_base import PassBase, PassResult
from torch.utils._pytree import tree_map

from pteron.errors import ExportError
from pteron.exir.edge.delegate_call import branch_results, cond_branches, is_cond
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

    One tensor has one spec object: a `getitem` gets that of the result it picks, an in-place operator that
    of the tensor it changes, an operand of a `cond` branch that of the caller's tensor. A view gets a spec
    whose `base` is the spec of what it views; a result of a branch has the result of the `cond` as its
    base.

    `ranges`: symbol → range; without it each symbol's own shape environment is asked.
    """

    def __init__(self, ranges: Ranges | None = None) -> None:
        super().__init__()
        self._ranges = ranges

    def call(self, graph_module: torch.fx.GraphModule) -> PassResult:
        """Run over `graph_module` and the branches of every `cond` in it, in place."""
        self._run(graph_module, {})
        return PassResult(graph_module, True)

    def _run(self, module: torch.fx.GraphModule, operands: dict[torch.fx.Node, Any]) -> None:
        for node in module.graph.nodes:
            if node in operands:
                node.meta["spec"] = operands[node]
            elif node.op in ("placeholder", "call_function") and "val" in node.meta:
                node.meta["spec"] = self._spec(node)
            if is_cond(node):
                self._branches(node)

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

    def _branches(self, node: torch.fx.Node) -> None:
        for module, operands in cond_branches(node):
            specs = {
                placeholder: operand.meta["spec"] if isinstance(operand, torch.fx.Node) else operand
                for placeholder, operand in operands
            }
            self._run(module, specs)
            for result, spec in zip(branch_results(module), node.meta["spec"], strict=True):
                made = result.meta["spec"] if isinstance(result, torch.fx.Node) else None
                if isinstance(made, TensorSpec):
                    _share_place(made, spec, node)


def _share_place(made: TensorSpec, result: TensorSpec, node: torch.fx.Node) -> None:
    # A pass may run again over specs that it has set, or over branches whose results other passes did not
    # copy.
    if made.root is result or made.base is not None:
        return
    if made.nbytes > result.nbytes:
        raise ExportError(
            f"{node.format_node()}: a branch returns {made.nbytes} bytes, the result has {result.nbytes}",
            expected=f"at most {result.shape}",
            got=str(made.shape),
            hint="let both branches return tensors of one shape",
        )
    made.base = result
