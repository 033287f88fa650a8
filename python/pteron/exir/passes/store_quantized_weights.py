"""Weights that torchao's operators dequantise: stored in the bits that they have."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram

from pteron.exir.edge.edge_op_overload import EdgeOpOverload, edge_op_by_name
from pteron.exir.passes.constant_values import add_constants, constant_values, remove_unread_constants
from pteron.exir.passes.run_graph_passes import copy_program

_DEQUANTIZE = "torchao.dequantize_affine.default"
_EMBEDDING = "aten.embedding.default"
_VIEW = edge_op_by_name("aten", "view_copy", "default")
#: Bits of a stored element → the operator that looks up rows, and the range of an element.
_LOOK_UPS = {
    8: ("embedding_byte", (-128, 127)),
    4: ("embedding_4bit", (-8, 7)),
    2: ("embedding_2bit", (-2, 1)),
}
_TRANSPOSITIONS = frozenset(
    f"aten.{name}" for name in ("permute_copy.default", "transpose_copy.int", "t_copy.default")
)
_PRODUCTS = frozenset({"aten.addmm.default", "aten.mm.default"})
#: Of 4 bits the first element is the high half of a byte, of 2 bits the lowest quarter.
_SHIFTS = {4: (4, 0), 2: (0, 2, 4, 6)}
#: Elements that are packed at a time: what is made on the way stands beside the weights.
_AT_ONCE = 1 << 18


def store_quantized_weights(program: ExportedProgram, kernels: Collection[str]) -> ExportedProgram:
    """`aten.embedding` of what `torchao.dequantize_affine` makes of a constant table becomes a look-up in the
    quantised table, which has 8, 4 or 2 bits for an element: `quantized_decomposed.embedding_byte`,
    `embedding_4bit`, `embedding_2bit`. The numbers are the same bit for bit.

    A weight of up to 4 bits that products read is packed as well: `embedding_4bit` of all its rows, which are
    those of the look-ups' table, or else one long row: every such weight then shares a constant index of one
    element.

    Stays, to be decomposed: what has no kernel in `kernels`, tables that the run computes, blocks of several
    rows, scales wider than the result.
    """
    names = {
        node.name
        for node in program.graph_module.graph.nodes
        if _is_dequantize(node) and (_is_weight(node) or any(_is_lookup(user, node) for user in node.users))
    }
    if not names:
        return program
    changed = copy_program(program)
    constants = constant_values(changed)
    replaced = False
    for node in list(changed.graph_module.graph.nodes):
        table = _table(node, constants) if node.name in names else None
        if table is not None and table.operator in kernels and table.is_to_store:
            _replace(changed, node, table)
            replaced = True
    if not replaced:
        return program
    remove_unread_constants(changed, set(constants))
    changed.graph_module.recompile()
    return changed


@dataclass(frozen=True)
class _Table:
    """A constant matrix of integers: `elements` int8 [N, K]; `scales` [N, G] and `zero_points` (None where
    all are 0) of G groups of columns; `bits` of a stored element; `node`, that makes floats of it.
    """

    node: torch.fx.Node
    elements: torch.Tensor
    scales: torch.Tensor
    zero_points: torch.Tensor | None
    bits: int

    @property
    def is_to_store(self) -> bool:
        """Whether anything reads it that an operator of packed tables replaces."""
        return self.is_packed_weight or any(_is_lookup(user, self.node) for user in self.node.users)

    @property
    def is_packed_weight(self) -> bool:
        """Whether products read it, of float32, and two elements share a byte."""
        return (
            self.bits == 4
            and _is_weight(self.node)
            and self.scales.dtype == torch.float32
            and self.elements.shape[1] // self.scales.shape[1] % 2 == 0
        )

    @property
    def operator(self) -> str:
        """The name of the kernel that looks rows up."""
        return f"quantized_decomposed::{_LOOK_UPS[self.bits][0]}.out"


def _is_lookup(user: torch.fx.Node, table: torch.fx.Node) -> bool:
    """Whether `user` reads rows of `table`."""
    return str(user.target) == _EMBEDDING and user.args[0] is table


def _is_weight(node: torch.fx.Node) -> bool:
    """Whether products alone read it, besides look-ups: as the weight of a linear layer."""
    readers = [user for user in node.users if not _is_lookup(user, node)]
    return bool(readers) and all(_is_product(user, node) for user in readers)


def _is_product(user: torch.fx.Node, weight: torch.fx.Node) -> bool:
    if str(user.target) == "aten.linear.default":
        return user.args[1] is weight
    return str(user.target) in _TRANSPOSITIONS and all(
        str(product.target) in _PRODUCTS and product.args[-1] is user for product in user.users
    )


def _is_dequantize(node: torch.fx.Node) -> bool:
    return isinstance(node.target, EdgeOpOverload) and str(node.target) == _DEQUANTIZE


def _table(node: torch.fx.Node, constants: Mapping[torch.fx.Node, torch.Tensor]) -> _Table | None:
    given = dict(zip((argument.name for argument in _schema(node)), node.args, strict=False)) | node.kwargs
    elements, scales = constants.get(given["input"]), constants.get(given["scale"])
    stated_zeros = given.get("zero_point")
    zeros = None if stated_zeros is None else constants.get(stated_zeros)
    if elements is None or scales is None or (zeros is None) != (stated_zeros is None):
        return None
    dtype = node.meta["val"].dtype
    if elements.dtype != torch.int8 or elements.dim() != 2 or elements.numel() == 0:
        return None
    if dtype != torch.float32 and scales.dtype != dtype:
        return None
    if zeros is not None and (zeros.dtype.is_floating_point or zeros.numel() != scales.numel()):
        return None
    rows, columns = elements.shape
    groups = _groups(given["block_size"], rows, columns)
    if groups is None or scales.numel() not in (rows * groups, 1):
        return None
    shape = (rows, groups)
    if zeros is not None:
        zeros = _spread(zeros, shape).to(dtype) if bool(zeros.any()) else None
    bits = _bits(elements, given.get("quant_min"), given.get("quant_max"))
    if bits == 2 and not any(_is_lookup(user, node) for user in node.users):
        bits = 4
    return _Table(node, elements, _spread(scales, shape).to(dtype), zeros, bits)


def _schema(node: torch.fx.Node) -> Sequence[Any]:
    target: Any = node.target
    arguments: Sequence[Any] = target._schema.arguments
    return arguments


def _groups(block: Sequence[int], rows: int, columns: int) -> int | None:
    """Groups of columns in a row; None where a block is no part of a row and not the whole table."""
    if list(block) == [rows, columns]:
        return 1
    if len(block) != 2 or block[0] != 1 or columns % block[1] or 1 in (block[1],):
        return None
    return columns // block[1]


def _spread(values: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
    """A number for each group; one for the whole table is repeated."""
    with torch.no_grad():
        return (
            values.detach().reshape(-1, 1).expand(shape).clone()
            if values.numel() == 1
            else (values.detach().reshape(shape).contiguous())
        )


def _bits(elements: torch.Tensor, low: Any, high: Any) -> int:
    """Of a stored element: the fewest that hold the stated range, if all elements keep to it."""
    if low is None or high is None:
        return 8
    for bits, (least, most) in ((2, (-2, 1)), (4, (-8, 7))):
        fits = least <= low and high <= most and elements.shape[1] % (8 // bits) == 0
        if fits and int(elements.min()) >= least and int(elements.max()) <= most:
            return bits
    return 8


def _packed(elements: torch.Tensor, bits: int) -> torch.Tensor:
    """int8 [N, K] → uint8 [N, K * bits / 8] as `embedding_4bit` and `embedding_2bit` read it; 8: as it is."""
    if bits == 8:
        return elements.detach().contiguous()
    shifts = _SHIFTS[bits]
    rows, columns = elements.shape
    result = torch.empty(rows, columns // len(shifts), dtype=torch.uint8)
    at_once = max(1, _AT_ONCE // columns)
    for first in range(0, rows, at_once):
        block = elements.detach()[first : first + at_once] + (1 << (bits - 1))
        parts = block.view(torch.uint8).reshape(len(block), -1, len(shifts))
        packed = result[first : first + at_once].zero_()
        for position, shift in enumerate(shifts):
            packed |= parts[..., position] << shift
    return result


def _replace(program: ExportedProgram, node: torch.fx.Node, table: _Table) -> None:
    """Puts look-ups in the place of those that read what `node` makes, and of a weight that it makes."""
    graph = program.graph_module.graph
    lookups = [user for user in node.users if _is_lookup(user, node)]
    if lookups:
        stored = _add(program, table, table.elements.shape[0])
        for lookup in lookups:
            _look_up(lookup, table.bits, stored, lookup.args[1])
    if table.is_packed_weight:
        rows = table.elements.shape[0] if lookups else 1
        if not lookups:
            stored = _add(program, table, rows)
        (every,) = add_constants(program, [(torch.arange(rows), node)], prefix="_quantized_rows")
        _look_up(node, table.bits, stored, every)
    elif not node.users:
        graph.erase_node(node)


def _add(program: ExportedProgram, table: _Table, rows: int) -> tuple[Any, ...]:
    """The constants of `table` in `rows` rows: elements, scales, zero points or None."""
    stored = [
        (_packed(table.elements, table.bits).reshape(rows, -1), table.node),
        (table.scales.reshape(rows, -1), table.node),
    ]
    if table.zero_points is not None:
        stored.append((table.zero_points.reshape(rows, -1), table.node))
    weight, scales, *zeros = add_constants(program, stored, prefix="_quantized_table")
    return weight, scales, zeros[0] if zeros else None


def _look_up(replaced: torch.fx.Node, bits: int, stored: tuple[Any, ...], indices: Any) -> None:
    """Puts the rows `indices` of the table, in the shape of `replaced`, in its place."""
    name, limits = _LOOK_UPS[bits]
    graph = replaced.graph
    op = edge_op_by_name("quantized_decomposed", name, "default")
    with graph.inserting_before(replaced):
        call = graph.call_function(op, (*stored, *limits, indices))
    call.meta = dict(replaced.meta)
    shape = (*indices.meta["val"].shape, stored[0].meta["val"].shape[1] * 8 // bits)
    if tuple(replaced.meta["val"].shape) != shape:
        call.meta["val"] = replaced.meta["val"].reshape(shape)
        with graph.inserting_before(replaced):
            seen = graph.call_function(_VIEW, (call, list(replaced.meta["val"].shape)))
        seen.meta = dict(replaced.meta)
        call = seen
    replaced.replace_all_uses_with(call)
    graph.erase_node(replaced)
