"""The argument list of an operator's call, as an instruction has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch._ops import OpOverload

from pteron.exir.edge.out_variant import is_out_argument
from pteron.exir.emit.value_table import ValueTable
from pteron.exir.schema import TensorList


def kernel_arguments(
    table: ValueTable, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[int], int | list[int]]:
    """(value indices in the order of the schema with the return behind them, what the call returns).

    `op`: an out variant or an operator that changes its first argument. Values of nodes are looked up in
    `table`, the others are added to it.
    """
    arguments: list[int] = []
    outs: list[int | list[int]] = []
    for position, schema in enumerate(op._schema.arguments):
        if position < len(args):
            value: Any = args[position]
        elif schema.name in kwargs:
            value = kwargs[schema.name]
        else:
            value = schema.default_value
        arguments.append(table.argument(value, schema))
        if is_out_argument(schema):
            outs.append(table.of(value))
    returned: int | list[int]
    if not outs:
        # An operator that changes its first argument returns that argument.
        returned = table.index_of(args[0])
        arguments.append(returned)
    elif len(outs) == 1 and isinstance(outs[0], int):
        returned = outs[0]
        arguments.append(returned)
    else:
        returned = list(outs[0]) if isinstance(outs[0], list) else [_single(out) for out in outs]
        arguments.append(table.add(TensorList(list(returned))))
    return arguments, returned


def _single(index: int | list[int]) -> int:
    assert isinstance(index, int)
    return index
