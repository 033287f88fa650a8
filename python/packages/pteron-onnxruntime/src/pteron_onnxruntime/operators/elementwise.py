"""Functions of single elements, and conversions between element types."""

from __future__ import annotations

import math

import torch

from pteron_onnxruntime.graph import ONNX_TYPE, Graph, UnsupportedError
from pteron_onnxruntime.operators.table import CONVERTERS, Arguments, converted

_SAME_NAME = {
    "abs": "Abs",
    "neg": "Neg",
    "exp": "Exp",
    "log": "Log",
    "sqrt": "Sqrt",
    "sin": "Sin",
    "cos": "Cos",
    "tan": "Tan",
    "asin": "Asin",
    "acos": "Acos",
    "atan": "Atan",
    "sinh": "Sinh",
    "cosh": "Cosh",
    "asinh": "Asinh",
    "acosh": "Acosh",
    "atanh": "Atanh",
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
    "erf": "Erf",
    "floor": "Floor",
    "ceil": "Ceil",
    "round": "Round",
    "sign": "Sign",
    "relu": "Relu",
    "reciprocal": "Reciprocal",
    "hardsigmoid": "HardSigmoid",
    "hardswish": "HardSwish",
}


def _unary(kind: str) -> None:
    def convert(g: Graph, a: Arguments) -> str:
        alpha = 1 / 6 if kind == "HardSigmoid" else None
        return str(g.op(kind, a.tensor("self", a.result.dtype), alpha=alpha))

    for name, onnx_name in _SAME_NAME.items():
        if onnx_name == kind:
            CONVERTERS[f"aten.{name}.default"] = convert


for _kind in _SAME_NAME.values():
    _unary(_kind)


def _binary(kind: str, *names: str) -> None:
    def convert(g: Graph, a: Arguments) -> str:
        dtype = a.result.dtype
        return str(g.op(kind, a.tensor("self", dtype), a.tensor("other", dtype)))

    for name in names:
        CONVERTERS[name] = convert


_binary("Mul", "aten.mul.Tensor", "aten.mul.Scalar")
_binary("Max", "aten.maximum.default")
_binary("Min", "aten.minimum.default")
_binary("BitwiseXor", "aten.bitwise_xor.Tensor", "aten.bitwise_xor.Scalar")


@converted("aten.add.Tensor", "aten.add.Scalar", "aten.sub.Tensor", "aten.sub.Scalar")
def _sum(g: Graph, a: Arguments) -> str:
    dtype, kind = a.result.dtype, "Add" if ".add." in _name(a) else "Sub"
    other, alpha = a.tensor("other", dtype), a.get("alpha")
    if alpha not in (None, 1):
        other = g.op("Mul", other, g.constant(alpha, dtype))
    return str(g.op(kind, a.tensor("self", dtype), other))


def _name(a: Arguments) -> str:
    return str(getattr(a.node.target, "__name__", ""))


@converted("aten.div.Tensor", "aten.div.Scalar", "aten.div.Tensor_mode", "aten.div.Scalar_mode")
def _div(g: Graph, a: Arguments) -> str:
    dtype, mode = a.result.dtype, a.get("rounding_mode")
    if mode is not None and not dtype.is_floating_point:
        raise UnsupportedError("division of integers with rounding")
    quotient = str(g.op("Div", a.tensor("self", dtype), a.tensor("other", dtype)))
    if mode == "trunc":
        return str(g.op("Mul", g.op("Sign", quotient), g.op("Floor", g.op("Abs", quotient))))
    return str(g.op("Floor", quotient)) if mode == "floor" else quotient


@converted("aten.pow.Tensor_Tensor", "aten.pow.Tensor_Scalar", "aten.pow.Scalar")
def _pow(g: Graph, a: Arguments) -> str:
    dtype = a.result.dtype
    if a.get("exponent") == 2:
        base = a.tensor("self", dtype)
        return str(g.op("Mul", base, base))
    return str(g.op("Pow", a.tensor("self", dtype), a.tensor("exponent", dtype)))


@converted("aten.remainder.Tensor", "aten.remainder.Scalar")
def _remainder(g: Graph, a: Arguments) -> str:
    dtype = a.result.dtype
    x, y = a.tensor("self", dtype), a.tensor("other", dtype)
    if not dtype.is_floating_point:
        return str(g.op("Mod", x, y))
    return str(g.op("Sub", x, g.op("Mul", g.op("Floor", g.op("Div", x, y)), y)))


@converted("aten.fmod.Tensor", "aten.fmod.Scalar")
def _fmod(g: Graph, a: Arguments) -> str:
    dtype = a.result.dtype
    return str(g.op("Mod", a.tensor("self", dtype), a.tensor("other", dtype), fmod=1))


@converted("aten.rsqrt.default")
def _rsqrt(g: Graph, a: Arguments) -> str:
    return str(g.op("Reciprocal", g.op("Sqrt", a.tensor("self", a.result.dtype))))


@converted("aten.log2.default", "aten.log10.default")
def _log(g: Graph, a: Arguments) -> str:
    base, dtype = 2 if "log2" in _name(a) else 10, a.result.dtype
    return str(g.op("Div", g.op("Log", a.tensor("self", dtype)), g.constant(math.log(base), dtype)))


@converted("aten.gelu.default")
def _gelu(g: Graph, a: Arguments) -> str:
    return str(g.op("Gelu", a.tensor("self"), approximate=a["approximate"]))


@converted("aten.leaky_relu.default")
def _leaky_relu(g: Graph, a: Arguments) -> str:
    return str(g.op("LeakyRelu", a.tensor("self"), alpha=float(a["negative_slope"])))


@converted("aten.elu.default")
def _elu(g: Graph, a: Arguments) -> str:
    if a["scale"] != 1 or a["input_scale"] != 1:
        raise UnsupportedError("elu with scales")
    return str(g.op("Elu", a.tensor("self"), alpha=float(a["alpha"])))


@converted("aten.hardtanh.default")
def _hardtanh(g: Graph, a: Arguments) -> str:
    bounds = [g.constant(a[name], a.result.dtype) for name in ("min_val", "max_val")]
    return str(g.op("Clip", a.tensor("self"), *bounds))


@converted("aten.clamp.default")
def _clamp(g: Graph, a: Arguments) -> str:
    dtype = a.result.dtype
    low, high = ("" if a[name] is None else a.tensor(name, dtype) for name in ("min", "max"))
    return str(g.op("Clip", a.tensor("self", dtype), low, high))


def _comparison(kind: str, name: str) -> None:
    def convert(g: Graph, a: Arguments) -> str:
        other = a["other"]
        value = other.meta["val"] if isinstance(other, torch.fx.Node) else other
        common = torch.result_type(a.value("self"), value)
        pair = a.tensor("self", common), a.tensor("other", common)
        return str(g.op("Not", g.op("Equal", *pair)) if kind == "Not" else g.op(kind, *pair))

    for overload in ("Tensor", "Scalar"):
        CONVERTERS[f"aten.{name}.{overload}"] = convert


for _kind, _aten in (
    *(("Equal", "eq"), ("Not", "ne"), ("Less", "lt"), ("Greater", "gt")),
    *(("LessOrEqual", "le"), ("GreaterOrEqual", "ge")),
):
    _comparison(_kind, _aten)


def _logical(kind: str, name: str) -> None:
    def convert(g: Graph, a: Arguments) -> str:
        return str(g.op(kind, a.tensor("self", torch.bool), a.tensor("other", torch.bool)))

    CONVERTERS[f"aten.logical_{name}.default"] = convert


for _kind, _aten in (("And", "and"), ("Or", "or"), ("Xor", "xor")):
    _logical(_kind, _aten)


@converted(
    "aten.bitwise_and.Tensor", "aten.bitwise_or.Tensor", "aten.bitwise_and.Scalar", "aten.bitwise_or.Scalar"
)
def _bitwise(g: Graph, a: Arguments) -> str:
    dtype, kind = a.result.dtype, "And" if "_and" in _name(a) else "Or"
    pair = a.tensor("self", dtype), a.tensor("other", dtype)
    return str(g.op(kind if dtype == torch.bool else f"Bitwise{kind}", *pair))


@converted("aten.logical_not.default", "aten.bitwise_not.default")
def _not(g: Graph, a: Arguments) -> str:
    is_bool = a.value("self").dtype == torch.bool or "logical" in _name(a)
    return str(g.op("Not", a.tensor("self", torch.bool)) if is_bool else g.op("BitwiseNot", a.tensor("self")))


@converted("aten.isnan.default")
def _isnan(g: Graph, a: Arguments) -> str:
    return str(g.op("IsNaN", a.tensor("self")))


@converted("aten.isinf.default")
def _isinf(g: Graph, a: Arguments) -> str:
    return str(g.op("IsInf", a.tensor("self")))


@converted("aten.where.self")
def _where(g: Graph, a: Arguments) -> str:
    dtype = a.result.dtype
    return str(
        g.op("Where", a.tensor("condition", torch.bool), a.tensor("self", dtype), a.tensor("other", dtype))
    )


@converted("dim_order_ops._to_dim_order_copy.default", "aten._to_copy.default")
def _to_copy(g: Graph, a: Arguments) -> str:
    source, wanted = a.value("self").dtype, a.result.dtype
    if source == wanted:
        return str(g.op("Identity", a.tensor("self")))
    return str(g.op("Cast", a.tensor("self"), to=ONNX_TYPE[wanted]))


@converted("dim_order_ops._clone_dim_order.default", "aten.clone.default", "aten.alias_copy.default")
def _clone(g: Graph, a: Arguments) -> str:
    return str(g.op("Identity", a.tensor("self")))
