"""Quantised patterns that one operator computes: look-ups in quantised tables, and moves of elements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx.passes.infra.pass_base import PassResult

from pteron.compat.exir.passes.constants import constant_prop_pass
from pteron.exir.edge.edge_op_overload import EdgeOpOverload
from pteron.exir.edge.exir_ops import exir_ops
from pteron.exir.passes.constant_values import constant_values
from pteron.exir.passes.export_pass import ExportPass

__all__ = ["QuantFusionPass", "_get_node_value_dict", "quant_fusion_and_const_prop_pass"]

_EDGE = exir_ops.edge
_QUANTIZE = _EDGE.quantized_decomposed.quantize_per_tensor.default
_DEQUANTIZE = _EDGE.quantized_decomposed.dequantize_per_tensor.default
_PER_CHANNEL = _EDGE.quantized_decomposed.dequantize_per_channel.default
_PER_GROUP = _EDGE.quantized_decomposed.dequantize_per_channel_group.default
_EMBEDDING = _EDGE.aten.embedding.default
_CAT = _EDGE.aten.cat.default
_AFFINE = "torchao.dequantize_affine.default"

#: They put elements elsewhere and look at none.
_MOVES = frozenset(
    {
        _EDGE.aten.view_copy.default,
        _EDGE.aten.slice_copy.Tensor,
        _EDGE.aten.select_copy.int,
        _EDGE.aten.permute_copy.default,
        _EDGE.aten.transpose_copy.int,
        _EDGE.aten.squeeze_copy.dims,
        _EDGE.aten.unsqueeze_copy.default,
        _EDGE.aten.expand_copy.default,
    }
)
#: Smallest and largest number of a table → bits of an element.
_BITS = {(-128, 127): 8, (-8, 7): 4, (-2, 1): 2}


def _define_packing() -> None:
    """`quant_fusion::_pack_embedding_weight`, unless ExecuTorch's package has defined it."""
    if hasattr(torch.ops.quant_fusion, "_pack_embedding_weight"):
        return

    @torch.library.custom_op("quant_fusion::_pack_embedding_weight", mutates_args=())
    def pack(weight: torch.Tensor, bitwidth: int) -> torch.Tensor:
        return _packed(weight, bitwidth)

    @pack.register_fake
    def _(weight: torch.Tensor, bitwidth: int) -> torch.Tensor:
        return weight.new_empty((weight.shape[0], weight.shape[1] * bitwidth // 8), dtype=torch.uint8)


def _packed(weight: torch.Tensor, bits: int) -> torch.Tensor:
    """Several elements in a byte: of 4 bits the first is the high half, of 2 bits the lowest quarter."""
    in_byte = 8 // bits
    if weight.shape[1] % in_byte:
        raise ValueError(f"rows of {weight.shape[1]} elements do not fill bytes of {in_byte}")
    shifted = (weight + (1 << (bits - 1))).view(torch.uint8)
    parts = shifted.reshape(weight.shape[0], -1, in_byte)
    shifts = (4, 0) if bits == 4 else range(0, 8, bits)
    result = torch.zeros_like(parts[:, :, 0])
    for position, shift in enumerate(shifts):
        result |= parts[:, :, position] << shift
    return result


_define_packing()


class QuantFusionPass(ExportPass):
    """Fuse, in place:

    - an embedding of a dequantised table into `quantized_decomposed.embedding_byte`, `embedding_4bit` or
      `embedding_2bit`, whose table stays quantised; elements below a byte are packed by
      `quant_fusion::_pack_embedding_weight`, which `constant_prop_pass` computes,
    - dequantise, an operator that only moves elements, quantise with the same numbers, into that operator.

    Only a dequantised value that nobody else reads is fused. Arithmetic is left: this package's runtime
    fuses it when it loads a program.

    Args:
        _fix_node_meta_val: accepted; every node that is made states its value.
        node_value_dict: name of a constant → its value, as `_get_node_value_dict` gives it. Zero points that
            are all 0 are left out where it tells that.
    """

    def __init__(
        self, _fix_node_meta_val: bool = False, node_value_dict: Mapping[str, torch.Tensor] | None = None
    ) -> None:
        super().__init__()
        self.node_value_dict = node_value_dict

    def call(self, graph_module: torch.fx.GraphModule) -> PassResult:
        """Run over `graph_module`, the graphs below it left out."""
        changed = False
        for node in list(graph_module.graph.nodes):
            if node.target is _EMBEDDING:
                changed |= self._fuse_embedding(node)
            elif node.target is _QUANTIZE:
                changed |= _fuse_moves(node)
        graph_module.graph.eliminate_dead_code()
        graph_module.recompile()
        return PassResult(graph_module, changed)

    def _fuse_embedding(self, node: torch.fx.Node) -> bool:
        table, indices = node.args[:2]
        if not isinstance(table, torch.fx.Node) or len(table.users) != 1:
            return False
        found = self._table_of(table, node)
        if found is None:
            return False
        bits, weight, scales, zero_points, limits, dtype = found
        name = "embedding_byte" if bits == 8 else f"embedding_{bits}bit"
        packet = getattr(_EDGE.quantized_decomposed, name)
        if bits != 8:
            weight = _call(node, _EDGE.quant_fusion._pack_embedding_weight.default, weight, bits)
        arguments = (weight, scales, zero_points, *limits, indices)
        fused = (
            _call(node, packet.default, *arguments)
            if dtype is None
            else _call(node, packet.dtype, *arguments, dtype=dtype)
        )
        node.replace_all_uses_with(fused)
        return True

    def _table_of(self, table: torch.fx.Node, reader: torch.fx.Node) -> Any:
        """(bits, weight, scales, zero points or None, limits, dtype unless that of the scales) of a
        dequantised table; None where it is none that an operator takes.
        """
        arguments: Any = table.args
        if table.target is _PER_CHANNEL and arguments[3] == 0 and arguments[6] is torch.uint8:
            weight, scales, zero_points, _, low, high, _ = arguments
            return 8, weight, scales, zero_points, (low, high), None
        if table.target is _PER_GROUP:
            weight, scales, zero_points, low, high = arguments[:5]
            made = table.meta["val"].dtype
            dtype = None if made is scales.meta["val"].dtype else made
            return 8, weight, scales, zero_points, (low, high), dtype
        if str(table.target) != _AFFINE or len(arguments) < 7:
            return None
        weight, block, scales, zero_points, element, low, high = arguments[:7]
        bits = _BITS.get((low, high))
        if bits is None or element is not torch.int8 or len(block) != 2 or block[0] != 1:
            return None
        dtype = arguments[7] if len(arguments) > 7 else None
        return bits, weight, scales, self._zero_points(zero_points, scales, reader), (low, high), dtype

    def _zero_points(self, given: Any, scales: torch.fx.Node, reader: torch.fx.Node) -> Any:
        """None where all are known to be 0; else in the type of the scales, as the operators take them."""
        if given is None:
            return None
        known = (self.node_value_dict or {}).get(given.name)
        if known is not None and not known.any():
            return None
        dtype = scales.meta["val"].dtype
        if given.meta["val"].dtype is dtype:
            return given
        return _call(reader, _EDGE.aten._to_copy.default, given, dtype=dtype)


def _call(before: torch.fx.Node, op: EdgeOpOverload, *args: Any, **kwargs: Any) -> torch.fx.Node:
    """A call of `op` in front of a node, with the origin of the node."""
    with before.graph.inserting_before(before):
        made = before.graph.call_function(op, args, kwargs)
    made.meta = dict(before.meta)
    given = torch.fx.node.map_arg((args, kwargs), lambda node: node.meta["val"])
    made.meta["val"] = op(*given[0], **given[1])
    return made


def _fuse_moves(quantize: torch.fx.Node) -> bool:
    """Run what stands between dequantise and quantise over quantised numbers, where it only moves them."""
    moved, *numbers = quantize.args
    if not isinstance(moved, torch.fx.Node) or len(moved.users) != 1:
        return False
    if moved.target in _MOVES:
        operands: list[Any] = [moved.args[0]]
    elif moved.target is _CAT:
        joined: Any = moved.args[0]
        operands = list(joined)
    else:
        return False
    if not all(_is_dequantized(each, numbers) for each in operands):
        return False
    before = [each.args[0] for each in operands]
    first: Any = before if moved.target is _CAT else before[0]
    fused = _call(moved, moved.target, first, *moved.args[1:], **moved.kwargs)
    quantize.replace_all_uses_with(fused)
    return True


def _is_dequantized(value: Any, numbers: list[Any]) -> bool:
    return (
        isinstance(value, torch.fx.Node) and value.target is _DEQUANTIZE and list(value.args[1:]) == numbers
    )


def _get_node_value_dict(program: ExportedProgram) -> dict[str, torch.Tensor]:
    """Name of a constant's node → its value."""
    return dict(_named_values(program))


def _named_values(program: ExportedProgram) -> Iterator[tuple[str, torch.Tensor]]:
    for node, value in constant_values(program).items():
        yield node.name, value


def quant_fusion_and_const_prop_pass(program: ExportedProgram) -> ExportedProgram:
    """`QuantFusionPass` and then `constant_prop_pass`, in place."""
    QuantFusionPass(node_value_dict=_get_node_value_dict(program)).call(program.graph_module)
    return constant_prop_pass(program)
