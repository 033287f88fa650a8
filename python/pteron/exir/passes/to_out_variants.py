"""Replace functional operators by overloads that write into allocated tensors."""

from __future__ import annotations

from typing import Any

import torch

from pteron.exir.edge.edge_op_overload import EdgeOpOverload
from pteron.exir.edge.memory_nodes import alloc
from pteron.exir.edge.out_variant import out_argument_names, out_variant
from pteron.exir.edge.tensor_spec import TensorSpec
from pteron.exir.passes.exported_program_pass import each_graph


@each_graph
def to_out_variants(module: torch.fx.GraphModule) -> None:
    """Point every edge operator of `program` at its out variant and give it `alloc` nodes to write into, in
    place.

    Each `alloc` carries the spec of the tensor that it makes room for: the same object as in the operator's
    own `meta["spec"]`. Arguments that the out variant does not take (dtype, layout, device) go. Raises
    `MissingOutVariantError`.
    """
    for node in list(module.graph.nodes):
        if node.op == "call_function" and isinstance(node.target, EdgeOpOverload):
            _rewrite(module.graph, node, node.target)
    module.graph.lint()
    module.recompile()


def _rewrite(graph: torch.fx.Graph, node: torch.fx.Node, op: EdgeOpOverload) -> None:
    out = out_variant(op.aten_overload)
    names = out_argument_names(out)
    results = _results(node, len(names))
    with graph.inserting_before(node):
        allocated = {name: _alloc(graph, node, spec) for name, spec in zip(names, results, strict=True)}
    accepted = {argument.name for argument in out._schema.arguments}
    node.kwargs = {
        **{name: value for name, value in node.kwargs.items() if name in accepted},
        **allocated,
    }
    node.target = out


def _results(node: torch.fx.Node, count: int) -> list[Any]:
    """One spec, or list of specs, per out argument."""
    spec, value = node.meta["spec"], node.meta["val"]
    if count == 1:
        return [(spec, value)]
    return list(zip(spec, value, strict=True))


def _alloc(graph: torch.fx.Graph, node: torch.fx.Node, result: tuple[Any, Any]) -> torch.fx.Node:
    spec, value = result
    described: Any
    if isinstance(spec, TensorSpec):
        described = (tuple(spec.shape), spec.dtype)
    else:
        described = [(each.shape, each.dtype) for each in spec]
    made = graph.call_function(alloc, (described,))
    made.meta = {"val": value, "spec": spec}
    # No debug handle: that is the operator's, and making room is no step of it.
    for name in ("stack_trace", "nn_module_stack", "from_node"):
        if name in node.meta:
            made.meta[name] = node.meta[name]
    return made
