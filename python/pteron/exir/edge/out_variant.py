"""Functional operator → the overload that writes into given tensors.

A program file calls out variants only: `aten.add.Tensor(a, b, alpha)` is emitted as `aten.add.out(a, b,
alpha, out)`. The match is made on the schemas: same operator name, same arguments in the same order, and
one writable keyword-only argument per returned tensor. Factory options (dtype, layout, device, pin_memory)
have no place in many out variants, since the given tensor already states them, so they may be missing
there.
"""

from __future__ import annotations

import functools

import torch
from torch._ops import OpOverload

from pteron.errors import MissingOutVariantError
from pteron.exir.edge import known_out_variants, quantized_out_variants
from pteron.exir.edge.custom_ops import is_custom, made_out_variant

_FACTORY_OPTIONS = frozenset({"dtype", "layout", "device", "pin_memory"})


def is_out_argument(argument: torch.Argument) -> bool:
    """Whether a schema argument receives the result of an out variant."""
    return bool(argument.kwarg_only and argument.alias_info is not None and argument.alias_info.is_write)


def out_argument_names(op: OpOverload) -> list[str]:
    """Names of the arguments that an out variant writes to, in schema order; empty for other operators."""
    return [argument.name for argument in op._schema.arguments if is_out_argument(argument)]


def _signature(arguments: list[torch.Argument], *, without: frozenset[str]) -> list[tuple[str, str]]:
    return [(argument.name, str(argument.type)) for argument in arguments if argument.name not in without]


def _matches(functional: torch._C.FunctionSchema, candidate: torch._C.FunctionSchema) -> int:
    """2: every argument is the same; 1: the same but for factory options; 0: no match."""
    outs = [argument for argument in candidate.arguments if is_out_argument(argument)]
    if not outs or len(outs) != len(functional.returns):
        return 0
    if any(str(out.type) != str(result.type) for out, result in zip(outs, functional.returns, strict=True)):
        return 0
    rest = [argument for argument in candidate.arguments if not is_out_argument(argument)]
    if _signature(rest, without=frozenset()) == _signature(functional.arguments, without=frozenset()):
        return 2
    kept = frozenset(
        argument.name
        for argument in functional.arguments
        if argument.name in _FACTORY_OPTIONS and argument.name not in {other.name for other in rest}
    )
    if _signature(rest, without=frozenset()) == _signature(functional.arguments, without=kept):
        return 1
    return 0


def out_variant(op: OpOverload) -> OpOverload:
    """The out variant of a functional overload; of a custom operator without one, a variant made for it.

    Raises `MissingOutVariantError` where the operator has none.
    """
    try:
        return defined_out_variant(op)
    except MissingOutVariantError:
        if is_custom(op):
            return made_out_variant(op)
        raise


@functools.cache
def defined_out_variant(op: OpOverload) -> OpOverload:
    """The out variant that the library of a functional overload has.

    Raises `MissingOutVariantError` where it has none.
    """
    packet = op.overloadpacket
    best: tuple[int, OpOverload | None] = (0, None)
    for candidate in [
        *quantized_out_variants.candidates(op),
        *known_out_variants.candidates(op),
        *(getattr(packet, name) for name in packet.overloads()),
    ]:
        rank = _matches(op._schema, candidate._schema)
        if rank > best[0]:
            best = (rank, candidate)
    if best[1] is None:
        raise MissingOutVariantError(
            f"{op} has no out variant: no overload of {packet} takes its arguments and a tensor to write to",
            operator=str(op),
            hint="decompose the operator before export, or call one of your own (torch.library.custom_op), "
            "for which pteron.register_kernel takes a kernel",
        )
    return best[1]
