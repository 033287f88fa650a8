"""Compute at export what depends on constants alone."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram

from pteron.exir.edge.dim_order_ops import memory_format_of
from pteron.exir.edge.exir_ops import exir_ops
from pteron.exir.edge.tensor_spec import dim_order_of_value
from pteron.exir.passes.constant_values import add_constants, constant_values, remove_unread_constants
from pteron.exir.passes.effects import is_pure_call
from pteron.exir.passes.exported_program_pass import ExportedProgramPassBase, ExportedProgramPassResult

MOST_GROWTH = 64 * 1024
MOST_MOVED = 1024 * 1024
#: Elements of a quantised weight, at least; shorter constants are zero points and the like.
QUANTIZED_WEIGHT = 4096

# They move elements and compute nothing.
_LAYOUT_OPERATORS = frozenset(
    {
        exir_ops.edge.aten.permute_copy.default,
        exir_ops.edge.aten.transpose_copy.int,
        exir_ops.edge.aten.t_copy.default,
        exir_ops.edge.aten.view_copy.default,
        exir_ops.edge.aten.squeeze_copy.dims,
        exir_ops.edge.aten.unsqueeze_copy.default,
    }
)
_CASTS = frozenset(
    {exir_ops.edge.aten._to_copy.default, exir_ops.edge.dim_order_ops._to_dim_order_copy.default}
)


class FoldConstants(ExportedProgramPassBase):
    """Operators whose operands are all constants become constants; constants nobody reads any more go.

    Before: `wt = permute_copy(weight, [1, 0]); y = addmm(bias, x, wt)`. After: `y = addmm(bias, x, wt)`
    with `wt` in the file in place of `weight`.

    `most_growth`: bytes by which one group of operators that share constants may make the file larger; a
    group that would cost more stays (a mask made by `arange`, a transposed copy of a weight that is read as
    it is elsewhere).
    `most_moved`: bytes; where operators only move the elements of a constant that is larger, they stay. The
    run half folds them when it loads the program, and the model's weights need not be in memory twice until
    the program is saved. None: no such limit, for targets that would move them in every run.
    Buffers that a run changes are no constants. What stays: random operators, quantise and
    dequantise, casts of weights of one byte (int8, uint8) to floats, results that are returned,
    everything in branches and loop bodies.
    """

    def __init__(self, most_growth: int = MOST_GROWTH, most_moved: int | None = None) -> None:
        self.most_growth = most_growth
        self.most_moved = most_moved
        # Addresses of constants that each method reads as they are, by the identity of its program.
        self._read_as_is: dict[int, set[int]] = {}
        # What was computed is known by the addresses of its operands, which hold for one set of programs.
        self._is_bound = False
        self._numbers: dict[Any, int] = {}
        self._computed: dict[int, torch.Tensor] = {}

    def across(self, programs: Mapping[str, ExportedProgram]) -> FoldConstants:
        """This pass for the methods of one file: a constant that two of them fold is computed and stored
        once, and what another method reads as it is counts as growth.
        """
        bound = FoldConstants(self.most_growth, self.most_moved)
        bound._is_bound = True
        if len(programs) > 1:
            bound._read_as_is = {id(program): bound._addresses(program) for program in programs.values()}
        return bound

    def call(self, exported_program: ExportedProgram) -> ExportedProgramPassResult:
        """Fold in `exported_program`, in place."""
        if not self._is_bound:
            return self.across({"forward": exported_program}).call(exported_program)
        constants = constant_values(exported_program)
        elsewhere: set[int] = set()
        for other, addresses in self._read_as_is.items():
            if other != id(exported_program):
                elsewhere |= addresses
        cone = self._foldable(exported_program, constants, elsewhere)
        if not cone.results:
            return ExportedProgramPassResult(exported_program, False)
        values = self._values(cone, constants)
        for (_, node), placeholder in zip(values, add_constants(exported_program, values), strict=True):
            node.replace_all_uses_with(placeholder)
        graph = exported_program.graph_module.graph
        for node in reversed(cone.folded):
            if not node.users:
                graph.erase_node(node)
        remove_unread_constants(exported_program, set(constants))
        exported_program.graph_module.recompile()
        return ExportedProgramPassResult(exported_program, True)

    def _foldable(
        self,
        program: ExportedProgram,
        constants: Mapping[torch.fx.Node, torch.Tensor],
        elsewhere: set[int],
    ) -> _Cone:
        refused = set() if self.most_moved is None else _moved(program, constants, self.most_moved)
        while True:
            cone = _cone(program, constants, refused)
            too_large = _too_large(cone, constants, elsewhere, self.most_growth)
            if not too_large:
                return cone
            refused |= too_large

    def _addresses(self, program: ExportedProgram) -> set[int]:
        constants = constant_values(program)
        cone = self._foldable(program, constants, set())
        return {
            value.data_ptr()
            for node, value in constants.items()
            if any(user not in cone.folded for user in node.users)
        }

    def _values(
        self, cone: _Cone, constants: Mapping[torch.fx.Node, torch.Tensor]
    ) -> list[tuple[torch.Tensor, torch.fx.Node]]:
        numbers = self._value_numbers(cone, constants)
        made = self._computed
        needed = {node for node in cone.results if numbers[node] not in made}
        for node in reversed(cone.folded):
            if node in needed:
                needed.update(operand for operand in node.all_input_nodes if operand in cone.folded)
        readers = {node: sum(user in needed for user in node.users) for node in needed}
        known: dict[torch.fx.Node, Any] = {}

        def operand_value(operand: torch.fx.Node) -> Any:
            return constants[operand].detach() if operand in constants else known[operand]

        with torch.no_grad():
            for node in cone.folded:
                if node not in needed:
                    continue
                args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), operand_value)
                target: Any = node.target
                known[node] = target(*args, **kwargs)
                if node in cone.results:
                    made[numbers[node]] = _in_stored_order(known[node], node.meta["val"])
                # Weights are large: what nobody needs any more goes at once.
                for operand in (node, *node.all_input_nodes):
                    if operand in readers:
                        readers[operand] -= operand is not node
                        if readers[operand] == 0:
                            known.pop(operand, None)
        return [(made[numbers[node]], node) for node in cone.results]

    def _value_numbers(
        self, cone: _Cone, constants: Mapping[torch.fx.Node, torch.Tensor]
    ) -> dict[torch.fx.Node, int]:
        """A number per call: two calls of any method get the same one where they compute the same value."""
        numbers: dict[torch.fx.Node, int] = {}

        def part(argument: Any) -> Any:
            if isinstance(argument, torch.fx.Node):
                if argument in numbers:
                    return ("call", numbers[argument])
                value = constants[argument]
                return ("tensor", value.data_ptr(), value.dtype, tuple(value.shape), value.stride())
            if isinstance(argument, (list, tuple)):
                return tuple(part(each) for each in argument)
            return (type(argument).__name__, repr(argument))

        for node in cone.folded:
            named = tuple((name, part(value)) for name, value in sorted(node.kwargs.items()))
            key = (str(node.target), tuple(part(value) for value in node.args), named)
            numbers[node] = self._numbers.setdefault(key, len(self._numbers))
        return numbers


@dataclass
class _Cone:
    """Calls that depend on constants alone; `results` are those that others read, in graph order."""

    folded: dict[torch.fx.Node, None] = field(default_factory=dict)
    results: dict[torch.fx.Node, None] = field(default_factory=dict)


def _moved(
    program: ExportedProgram, constants: Mapping[torch.fx.Node, torch.Tensor], most: int
) -> set[torch.fx.Node]:
    """Operators that only move elements of a constant of more than `most` bytes."""
    moved: set[torch.fx.Node] = set()
    for node in program.graph_module.graph.nodes:
        if node.target in _LAYOUT_OPERATORS:
            source = node.args[0]
            is_large = source in constants and _nbytes(constants[source]) > most
            if is_large or source in moved:
                moved.add(node)
    return moved


def _cone(
    program: ExportedProgram,
    constants: Mapping[torch.fx.Node, torch.Tensor],
    refused: set[torch.fx.Node],
) -> _Cone:
    cone = _Cone()
    for node in program.graph_module.graph.nodes:
        if node in refused or not _is_static(node.meta.get("val")):
            continue
        if not (is_pure_call(node) or node.target is operator.getitem) or _widens_weight(node):
            continue
        # An output has memory of its own, which an instruction must fill.
        if any(user.op == "output" for user in node.users):
            continue
        if all(operand in cone.folded or operand in constants for operand in node.all_input_nodes):
            cone.folded[node] = None
    # A call with several results is computed, but only its results taken one by one can be stored.
    for node in program.graph_module.graph.nodes:
        is_read = node in cone.folded and any(user not in cone.folded for user in node.users)
        if is_read and isinstance(node.meta["val"], torch.Tensor):
            cone.results[node] = None
    return cone


def _widens_weight(node: torch.fx.Node) -> bool:
    """Whether a call makes floats of a weight that is stored in bytes: quantised models do."""
    if node.target not in _CASTS or not isinstance(node.args[0], torch.fx.Node):
        return False
    before, after = node.args[0].meta.get("val"), node.meta["val"]
    return (
        isinstance(before, torch.Tensor)
        and before.dtype in (torch.int8, torch.uint8)
        and after.dtype.is_floating_point
        and before.numel() >= QUANTIZED_WEIGHT
    )


def _is_static(value: Any) -> bool:
    leaves = value if isinstance(value, (list, tuple)) else [value]
    return bool(leaves) and all(
        isinstance(leaf, torch.Tensor) and all(isinstance(extent, int) for extent in leaf.shape)
        for leaf in leaves
    )


def _too_large(
    cone: _Cone,
    constants: Mapping[torch.fx.Node, torch.Tensor],
    elsewhere: set[int],
    most_growth: int,
) -> set[torch.fx.Node]:
    """Results of groups (calls connected through constants) that need more room than the constants that they
    replace.
    """
    groups = _Groups()
    for node in cone.folded:
        groups.add(node)
        for operand in node.all_input_nodes:
            groups.join(node, operand)
    growth: dict[torch.fx.Node, int] = {}
    largest: dict[torch.fx.Node, list[torch.fx.Node]] = {}
    for node in cone.results:
        group = groups.find(node)
        growth[group] = growth.get(group, 0) + _nbytes(node.meta["val"])
        largest.setdefault(group, []).append(node)
    for node, value in constants.items():
        if node not in groups:
            continue
        if value.data_ptr() not in elsewhere and all(user in cone.folded for user in node.users):
            group = groups.find(node)
            growth[group] = growth.get(group, 0) - _nbytes(value)
    found: set[torch.fx.Node] = set()
    for group, results in largest.items():
        if growth[group] > most_growth:
            # Without its large results a group may still pay.
            large = [node for node in results if _nbytes(node.meta["val"]) > most_growth]
            found.update(large or results)
    return found


class _Groups:
    """Disjoint sets of nodes."""

    def __init__(self) -> None:
        self._parent: dict[torch.fx.Node, torch.fx.Node] = {}

    def __contains__(self, node: torch.fx.Node) -> bool:
        return node in self._parent

    def add(self, node: torch.fx.Node) -> None:
        self._parent.setdefault(node, node)

    def find(self, node: torch.fx.Node) -> torch.fx.Node:
        while self._parent[node] is not node:
            self._parent[node] = self._parent[self._parent[node]]
            node = self._parent[node]
        return node

    def join(self, one: torch.fx.Node, other: torch.fx.Node) -> None:
        self.add(one)
        self.add(other)
        self._parent[self.find(other)] = self.find(one)


def _nbytes(value: torch.Tensor) -> int:
    return value.numel() * value.dtype.itemsize


def _in_stored_order(value: torch.Tensor, planned: torch.Tensor) -> torch.Tensor:
    """`value` in the memory order that the graph states for it, without the memory of a larger tensor."""
    order = memory_format_of(dim_order_of_value(planned))
    if value.is_contiguous(memory_format=order) and value.untyped_storage().nbytes() == _nbytes(value):
        return value
    return value.clone(memory_format=order)
