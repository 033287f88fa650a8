"""Largest extents for the dimensions of inputs that `torch.export` left without one.

Memory is planned for the largest extents, so each needs one. A default is never silent: the report names it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from pteron.errors import ExportError
from pteron.exir.edge.extent_bounds import number_bounds

#: The default of a dimension without a maximum: so many times the example's extent, and no less than that.
TIMES_THE_EXAMPLE = 4
LEAST_DEFAULT = 32


@dataclass(frozen=True)
class DynamicExtent:
    """A symbol of the shapes of the inputs: where it stands, and its range.

    `inputs`: "x[0]" for dimension 0 of x. `is_default`: whether `largest` was chosen here.
    """

    symbol: str
    inputs: tuple[str, ...]
    smallest: int
    largest: int
    is_default: bool

    def __str__(self) -> str:
        where = ", ".join(self.inputs)
        note = " (no maximum was given: a default, see default_max)" if self.is_default else ""
        return f"{where}: {self.smallest} to {self.largest}{note}"


def with_limits(
    program: ExportedProgram, default_max: int | None
) -> tuple[ExportedProgram, tuple[DynamicExtent, ...]]:
    """The program with a largest extent for every symbol of its inputs' shapes, and these symbols.

    `default_max`: the largest extent of those without one; None for four times the example's, at least 32.
    The program given is left as it was. ExportError where `default_max` is less than the example needs.
    """
    places: dict[sympy.Symbol, tuple[Any, list[str]]] = {}
    for where, extent in _dynamic_extents(program):
        for symbol in sorted(extent.node.expr.free_symbols, key=str):
            places.setdefault(symbol, (extent.node.shape_env, []))[1].append(where)
    limited = copy.copy(program)
    limited._range_constraints = dict(program.range_constraints)
    found = []
    for symbol, (shape_env, inputs) in places.items():
        known = program.range_constraints.get(symbol, shape_env.var_to_range[symbol])
        is_open = known.upper in (int_oo, sympy.oo)
        if is_open:
            least = max(int(known.lower), int(shape_env.guarding_hint_or_throw(symbol)))
            known = ValueRanges(known.lower, _default(default_max, least, inputs))
            limited._range_constraints[symbol] = known
        found.append(
            DynamicExtent(str(symbol), tuple(inputs), max(0, int(known.lower)), int(known.upper), is_open)
        )
    return limited, tuple(found)


def _default(default_max: int | None, least: int, inputs: list[str]) -> int:
    if default_max is None:
        return max(TIMES_THE_EXAMPLE * least, LEAST_DEFAULT)
    if default_max < least:
        raise ExportError(
            f"export(default_max={default_max}): the example has {least} in {inputs[0]}",
            argument="default_max",
            expected=f"at least {least}",
            got=str(default_max),
            hint="give this dimension a maximum of its own with torch.export.Dim(max=...), or a larger "
            "default_max",
        )
    return default_max


def _dynamic_extents(program: ExportedProgram) -> Iterator[tuple[str, torch.SymInt]]:
    """Every symbolic extent of an input with its place."""
    nodes = [node for node in program.graph_module.graph.nodes if node.op == "placeholder"]
    for spec, node in zip(program.graph_signature.input_specs, nodes, strict=True):
        value = node.meta.get("val")
        if spec.kind is not InputKind.USER_INPUT or not isinstance(value, torch.Tensor):
            continue
        extents: Sequence[int | torch.SymInt] = value.shape
        for dimension, extent in enumerate(extents):
            smallest, largest = number_bounds(extent, program.range_constraints)
            if not isinstance(extent, int) and (smallest != largest or largest is None):
                yield f"{node.name}[{dimension}]", extent
