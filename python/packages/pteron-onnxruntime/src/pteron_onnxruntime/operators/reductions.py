"""Sums, means, extremes, places of extremes."""

from __future__ import annotations

import torch

from pteron_onnxruntime.graph import Graph, UnsupportedError
from pteron_onnxruntime.operators.table import CONVERTERS, Arguments, converted


def _reduced(g: Graph, kind: str, value: str, dims: list[int], keep: bool) -> str:
    axes = [g.ints(dims)] if dims else []
    return str(g.op(kind, value, *axes, keepdims=int(keep)))


def _over(a: Arguments) -> list[int]:
    return [] if a.get("dim") is None else a.dims()


def _reduction(kind: str, *names: str) -> None:
    def convert(g: Graph, a: Arguments) -> str:
        return _reduced(g, kind, a.tensor("self", a.result.dtype), _over(a), bool(a.get("keepdim")))

    for name in names:
        CONVERTERS[name] = convert


_reduction("ReduceSum", "aten.sum.dim_IntList", "aten.sum.default")
_reduction("ReduceMean", "aten.mean.dim", "aten.mean.default")
_reduction("ReduceMax", "aten.amax.default")
_reduction("ReduceMin", "aten.amin.default")


@converted("aten.any.dim", "aten.any.dims", "aten.any.default")
def _any(g: Graph, a: Arguments) -> str:
    bits = g.op("Cast", a.tensor("self", torch.bool), to=6)  # as int32: ONNX has no sum of truth values
    found = _reduced(g, "ReduceMax", bits, _over(a), bool(a.get("keepdim")))
    return g.cast(found, torch.int32, torch.bool)


@converted("aten.argmax.default", "aten.argmin.default")
def _place(g: Graph, a: Arguments) -> str:
    kind = "ArgMax" if "argmax" in str(a.node.target) else "ArgMin"
    value, keep = a.tensor("self"), int(a["keepdim"])
    if a["dim"] is not None:
        return str(g.op(kind, value, axis=a.dim(), keepdims=keep))
    if keep:
        raise UnsupportedError("a place in all dimensions that keeps them")
    return str(g.op(kind, g.op("Reshape", value, g.ints([-1])), axis=0, keepdims=0))


@converted("aten.max.dim", "aten.min.dim")
def _extreme(g: Graph, a: Arguments) -> list[str | None]:
    name = "Max" if "max" in str(a.node.target) else "Min"
    value, dim, keep = a.tensor("self"), a.dim(), int(a["keepdim"])
    if not a.rank():
        raise UnsupportedError("a number without dimensions")
    largest = _reduced(g, f"Reduce{name}", value, [dim], bool(keep))
    return [largest, g.op(f"Arg{name}", value, axis=dim, keepdims=keep)]


@converted("aten.topk.default")
def _topk(g: Graph, a: Arguments) -> list[str | None]:
    options = {"axis": a.dim(), "largest": int(a["largest"]), "sorted": int(a["sorted"])}
    return list(g.op("TopK", a.tensor("self"), g.ints([a["k"]]), outputs=2, **options))


@converted("aten.cumsum.default")
def _cumsum(g: Graph, a: Arguments) -> str:
    if not a.rank():
        raise UnsupportedError("a number without dimensions")
    return str(g.op("CumSum", a.tensor("self", a.result.dtype), g.constant(a.dim(), torch.int64)))


@converted("aten.var.correction")
def _var(g: Graph, a: Arguments) -> str:
    value, dims, keep = a.tensor("self"), _over(a) or list(range(a.rank())), bool(a["keepdim"])
    correction = 1 if a["correction"] is None else a["correction"]
    off = g.op("Sub", value, _reduced(g, "ReduceMean", value, dims, True))
    squares = g.op("Mul", off, off)
    if correction == 0:
        return _reduced(g, "ReduceMean", squares, dims, keep)
    count = 1
    for dim in dims:
        extent = a.value("self").shape[dim]
        if not isinstance(extent, int):
            raise UnsupportedError("a corrected variance over a dimension that varies")
        count *= extent
    total = _reduced(g, "ReduceSum", squares, dims, keep)
    return str(g.op("Div", total, g.constant(max(0, count - correction), a.result.dtype)))
