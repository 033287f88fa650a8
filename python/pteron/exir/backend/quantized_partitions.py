"""What partitioners of quantised programs use: comparing subgraphs, and replacing `dequantize → operators →
quantize` by one operator.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.fx.passes.utils.source_matcher_utils import SourcePartition

from pteron.exir.backend.cut_by_nodes import create_submodule_from_nodes
from pteron.exir.edge.exir_ops import exir_ops

__all__ = ["is_same_node", "remove_first_quant_and_last_dequant", "replace_quantized_partition_with_op"]


def __getattr__(name: str) -> Any:
    # On first use: naming the operators imports what registers them.
    if name == "T_QuantPerTensor":
        return exir_ops.edge.quantized_decomposed.quantize_per_tensor.default
    if name == "T_DQuantPerTensor":
        return exir_ops.edge.quantized_decomposed.dequantize_per_tensor.default
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def is_same_node(
    node_left: torch.fx.Node | Iterable[torch.fx.Node], node_right: torch.fx.Node | Iterable[torch.fx.Node]
) -> bool:
    """Whether two nodes, or the nodes of two lists pairwise, call the same targets on the same inputs, all
    the way up. Numbers among the arguments are not compared.
    """
    pairs = [(node_left, node_right)]
    seen: set[tuple[int, int]] = set()
    while pairs:
        left, right = pairs.pop()
        if not isinstance(left, torch.fx.Node) or not isinstance(right, torch.fx.Node):
            if isinstance(left, torch.fx.Node) or isinstance(right, torch.fx.Node):
                return False
            lefts, rights = list(left), list(right)
            if len(lefts) != len(rights):
                return False
            pairs += zip(lefts, rights, strict=True)
            continue
        if (id(left), id(right)) in seen:
            continue
        seen.add((id(left), id(right)))
        inputs = left.all_input_nodes, right.all_input_nodes
        if (left.op, left.target, len(inputs[0])) != (right.op, right.target, len(inputs[1])):
            return False
        pairs += zip(*inputs, strict=True)
    return True


def remove_first_quant_and_last_dequant(graph_module: torch.fx.GraphModule) -> None:
    """Makes a graph take and return quantised values, in place: `quantize_per_tensor` of an input and
    `dequantize_per_tensor` before the output are removed.
    """
    quantize, dequantize = __getattr__("T_QuantPerTensor"), __getattr__("T_DQuantPerTensor")
    for node in graph_module.graph.nodes:
        source = node.args[0] if node.args else None
        if node.target is quantize and isinstance(source, torch.fx.Node) and source.op == "placeholder":
            for user in list(node.users):
                user.replace_input_with(node, source)
        elif node.target is dequantize:
            for user in [user for user in node.users if user.op == "output"]:
                user.replace_input_with(node, source)
    graph_module.graph.eliminate_dead_code()
    graph_module.recompile()


def replace_quantized_partition_with_op(
    graph_module: torch.fx.GraphModule, partition: SourcePartition, replacement_op: Any
) -> tuple[torch.fx.Node, list[torch.fx.Node], list[torch.fx.Node]]:
    """Replaces a partition, with the `dequantize_per_tensor` before and the `quantize_per_tensor` after it,
    by one call of `replacement_op`, in place.

    Args:
        graph_module: the graph.
        partition: nodes of one source module, as `get_source_partitions` finds them.
        replacement_op: gets what the dequantised inputs were made from, in graph order. It returns a tensor
            where one result is quantised, else a list.

    Returns:
        The new call, the dequantising and the quantising nodes that went with the partition.

    Raises:
        AssertionError: no input is dequantised, or no result is quantised.
    """
    quantize, dequantize = __getattr__("T_QuantPerTensor"), __getattr__("T_DQuantPerTensor")
    members = set(partition.nodes)
    inside = [node for node in partition.nodes if node not in partition.params]
    outside = [a for node in partition.nodes for a in node.all_input_nodes if a not in members]
    dequantized = list(dict.fromkeys(node for node in outside if node.target is dequantize))
    readers = [user for node in partition.nodes for user in node.users if user not in members]
    quantized = list(dict.fromkeys(user for user in readers if user.target is quantize))
    if not dequantized:
        raise AssertionError("Dequant nodes missing in node list to be replaced.")
    if not quantized:
        raise AssertionError("Quant nodes missing in node list to be replaced.")
    _, call = create_submodule_from_nodes(
        graph_module, [*dequantized, *inside, *quantized], "to_be_replaced", skip_legalize_graph=True
    )
    with graph_module.graph.inserting_before(call):
        replaced = graph_module.graph.call_function(replacement_op, call.args, dict(call.kwargs))
    replaced.meta = call.meta
    if len(quantized) == 1:
        # A submodule returns a list of one; the operator returns the tensor.
        for item in list(call.users):
            item.replace_all_uses_with(replaced)
            graph_module.graph.erase_node(item)
    call.replace_all_uses_with(replaced)
    graph_module.graph.erase_node(call)
    graph_module.delete_submodule(str(call.target))
    graph_module.recompile()
    return replaced, dequantized, quantized
