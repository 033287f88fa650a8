"""Out variants of the `quantized_decomposed` operators, which PyTorch leaves to ExecuTorch's libraries.

A program file calls them under `quantized_decomposed`; the torch library behind them has a name of its own,
so that ExecuTorch, which defines overloads of the same names, can be imported into the same process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload

NAMESPACE = "quantized_decomposed"
LIBRARY_NAMESPACE = "pteron_quantized"

_TO = "int quant_min, int quant_max, ScalarType dtype, *, Tensor(a!) out) -> Tensor(a!)"
_FROM = (
    "int quant_min, int quant_max, ScalarType dtype, *, ScalarType? out_dtype=None, Tensor(a!) out) "
    "-> Tensor(a!)"
)
_CHOSEN = "*, Tensor(a!) scale_out, Tensor(b!) zero_point_out) -> (Tensor(a!), Tensor(b!))"
_TABLE = (
    "Tensor weight, Tensor weight_scales, Tensor? weight_zero_points, int weight_quant_min, "
    "int weight_quant_max, Tensor indices, *, "
)
_PRODUCT = "Tensor input, Tensor weight, Tensor weight_scales, Tensor? weight_zero_points, "

_SCHEMAS = (
    f"quantize_per_tensor.out(Tensor input, float scale, int zero_point, {_TO}",
    f"quantize_per_tensor.Tensor_out(Tensor input, Tensor scale, Tensor zero_point, {_TO}",
    f"quantize_per_channel.out(Tensor input, Tensor scales, Tensor zero_points, int axis, {_TO}",
    f"quantize_per_token.out(Tensor input, Tensor scales, Tensor zero_points, {_TO}",
    f"dequantize_per_tensor.out(Tensor input, float scale, int zero_point, {_FROM}",
    f"dequantize_per_tensor.Tensor_out(Tensor input, Tensor scale, Tensor zero_point, {_FROM}",
    f"dequantize_per_channel.out(Tensor input, Tensor scales, Tensor? zero_points, int axis, {_FROM}",
    "dequantize_per_token.out(Tensor input, Tensor scales, Tensor zero_points, int quant_min, int quant_max, "
    "ScalarType dtype, ScalarType output_dtype, *, Tensor(a!) out) -> Tensor(a!)",
    "choose_qparams.Tensor_out(Tensor input, int quant_min, int quant_max, float eps, ScalarType dtype, "
    + _CHOSEN,
    f"choose_qparams_per_token_asymmetric.out(Tensor input, ScalarType dtype, {_CHOSEN}",
    *(f"embedding_{width}.out({_TABLE}Tensor(a!) out) -> Tensor(a!)" for width in ("byte", "2bit", "4bit")),
    *(
        f"embedding_{width}.dtype_out({_TABLE}ScalarType? dtype=None, Tensor(a!) out) -> Tensor(a!)"
        for width in ("byte", "2bit", "4bit")
    ),
    f"mixed_mm.out({_PRODUCT}*, Tensor(a!) out) -> Tensor(a!)",
    f"mixed_linear.out({_PRODUCT}ScalarType? dtype=None, *, Tensor(a!) out) -> Tensor(a!)",
    "add.out(Tensor a, float a_scale, int a_zero_point, int a_quant_min, int a_quant_max, Tensor b, "
    "float b_scale, int b_zero_point, int b_quant_min, int b_quant_max, float out_scale, int out_zero_point, "
    "int out_quant_min, int out_quant_max, *, Tensor(a!) out) -> Tensor(a!)",
)

_FUNCTIONAL = {"out": "default", "Tensor_out": "tensor", "dtype_out": "dtype"}


def _implementation(name: str) -> Callable[..., Any]:
    operator, overload = name.split(".")

    def write(*args: Any, **kwargs: Any) -> Any:
        outs = [kwargs.pop(key) for key in ("out", "scale_out", "zero_point_out") if key in kwargs]
        functional = getattr(getattr(torch.ops.quantized_decomposed, operator), _FUNCTIONAL[overload])
        result = functional(*args, **kwargs)
        results = [result] if isinstance(result, torch.Tensor) else list(result)
        for out, value in zip(outs, results, strict=True):
            out.resize_(value.shape, memory_format=torch.preserve_format).copy_(value)
        return outs[0] if len(outs) == 1 else tuple(outs)

    return write


def _register() -> Any:
    # torch.library has no annotations.
    library: Any = torch.library.Library(LIBRARY_NAMESPACE, "DEF")  # type: ignore[no-untyped-call]
    for schema in _SCHEMAS:
        library.define(schema)
        name = schema[: schema.index("(")]
        library.impl(name, _implementation(name), "CompositeExplicitAutograd")
    return library


# Registrations live as long as the library object.
_library = _register()


def candidates(op: OpOverload) -> list[OpOverload]:
    """The overloads defined here for the operator of `op`; none for operators of other namespaces."""
    if op.namespace != NAMESPACE:
        return []
    packet = getattr(getattr(torch.ops, LIBRARY_NAMESPACE), op._schema.name.split("::")[1], None)
    return [] if packet is None else [getattr(packet, name) for name in packet.overloads()]
