"""Operators and their schemas: out variants, aliases of results, PyTorch overloads behind edge operators."""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload
from torch.ao.quantization.fx._decomposed import quantized_decomposed_lib  # noqa: F401 -- registers its operators
from torchgen.model import FunctionSchema, SchemaKind
from torchgen.native_function_generation import (
    functional_to_out_signature,
    mutable_to_out_signature,
    self_to_out_signature,
)

from pteron.exir.edge.out_variant import defined_out_variant, out_argument_names

_QUANTIZED = torch.ops.quantized_decomposed
_QUANT_PRIMITIVES = [
    _QUANTIZED.dequantize_per_channel.default,
    _QUANTIZED.dequantize_per_tensor.default,
    _QUANTIZED.dequantize_per_tensor.tensor,
    _QUANTIZED.convert_element_type.no_fuse,
    _QUANTIZED.quantize_per_tensor.default,
    _QUANTIZED.quantize_per_tensor.tensor,
    _QUANTIZED.quantize_per_channel.default,
    _QUANTIZED.choose_qparams.tensor,
]

_TO_OUT = {
    SchemaKind.functional: functional_to_out_signature,
    SchemaKind.inplace: self_to_out_signature,
    SchemaKind.mutable: mutable_to_out_signature,
    SchemaKind.out: lambda schema: schema,
}


def gen_out_variant_schema(func_op_schema: str) -> str:
    """The schema of the out variant of an operator, from its schema; RuntimeError for other kinds of
    operators.
    """
    namespace, separator, rest = func_op_schema.rpartition("::")
    schema = FunctionSchema.parse(rest)
    convert = _TO_OUT.get(schema.kind())
    if convert is None:
        raise RuntimeError(f"SchemaKind: {schema.kind()} is not supported")
    return f"{namespace}{separator}{convert(schema)}"


def _pybind_schema_to_native_schema(pybind_schema: torch._C.FunctionSchema) -> FunctionSchema | None:
    """The schema as torchgen has it; None where torchgen cannot read it."""
    try:
        return FunctionSchema.parse(str(pybind_schema))
    except (RuntimeError, AssertionError, ValueError):
        return None


def _get_overload_schema(op_overload: OpOverload) -> FunctionSchema | None:
    return _pybind_schema_to_native_schema(op_overload._schema)


def unwrap_op_overload(target: object) -> OpOverload:
    """The PyTorch overload of a call target: itself, or what an edge operator wraps; TypeError for other
    targets.
    """
    found = target if isinstance(target, OpOverload) else getattr(target, "_op", None)
    if not isinstance(found, OpOverload):
        raise TypeError(
            "unwrap_op_overload: expected a torch._ops.OpOverload or a wrapper exposing one as `_op`, got "
            f"{type(target).__name__}: {target!r}"
        )
    return found


def output_to_aliased_input_map(schema: torch._C.FunctionSchema) -> dict[int, int]:
    """Index of a result → index of the argument that it is, for results that operators write into."""
    written: dict[frozenset[str], int] = {}
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            written.setdefault(frozenset(argument.alias_info.before_set), position)
    return {
        position: written[frozenset(result.alias_info.before_set)]
        for position, result in enumerate(schema.returns)
        if result.alias_info is not None
        and result.alias_info.is_write
        and frozenset(result.alias_info.before_set) in written
    }


def get_out_args_from_opoverload(op_overload: OpOverload) -> tuple[str, ...]:
    """Names of the arguments that an out variant writes into."""
    return tuple(out_argument_names(op_overload))


def to_out_variant(op_overload: OpOverload) -> tuple[OpOverload, tuple[str, ...]]:
    """(the out variant, names of its out arguments); MissingOutVariantError, a RuntimeError, where there
    is none.
    """
    names = out_argument_names(op_overload)
    found = op_overload if names else defined_out_variant(op_overload)
    return found, tuple(out_argument_names(found))


def get_op_overload(qualified_opname: str, overload: str) -> OpOverload:
    """The overload of `namespace::name`."""
    namespace, separator, name = qualified_opname.partition("::")
    if not separator:
        raise RuntimeError(f"Invalid qualified_opname {qualified_opname}")
    found: Any = getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")
    return found  # type: ignore[no-any-return]


def is_out_variant(qualified_opname: str, overload: str) -> bool:
    """Whether an overload writes into tensors that the caller gives."""
    schema = _get_overload_schema(get_op_overload(qualified_opname, overload))
    return schema is not None and schema.is_out_fn()


def is_inplace_variant(qualified_opname: str, overload: str) -> bool:
    """Whether an overload writes into its first argument."""
    schema = _get_overload_schema(get_op_overload(qualified_opname, overload))
    return schema is not None and schema.kind() == SchemaKind.inplace
