"""Shapes, parts of tensors, indices, and tensors of one number."""

from __future__ import annotations

from typing import Any

import torch

from pteron_onnxruntime.graph import Graph, UnsupportedError
from pteron_onnxruntime.operators.table import Arguments, converted

_LAST = torch.iinfo(torch.int64).max


@converted("sym_size.int")
def _size(g: Graph, a: Arguments) -> str:
    return g.extent(a.tensor("self"), a.dim())


@converted("aten.view_copy.default")
def _view(g: Graph, a: Arguments) -> str:
    sizes = list(a["size"])
    varying = [at for at, size in enumerate(sizes) if not isinstance(size, int)]
    if len(varying) == 1 and -1 not in sizes and 0 not in sizes:
        sizes[varying[0]] = -1
    # With a zero among the sizes -1 is refused, and without `allowzero` a zero means "as before".
    return str(
        g.op("Reshape", a.tensor("self"), g.ints(sizes), allowzero=int(0 in sizes or len(varying) > 1))
    )


@converted("aten.permute_copy.default")
def _permute(g: Graph, a: Arguments) -> str:
    return str(g.op("Transpose", a.tensor("self"), perm=a.dims("dims")))


@converted("aten.transpose_copy.int")
def _transpose(g: Graph, a: Arguments) -> str:
    order = list(range(a.rank()))
    one, other = a.dim("dim0"), a.dim("dim1")
    order[one], order[other] = order[other], order[one]
    return str(g.op("Transpose", a.tensor("self"), perm=order))


@converted("aten.t_copy.default")
def _t(g: Graph, a: Arguments) -> str:
    return str(g.op("Transpose", a.tensor("self"), perm=list(range(a.rank()))[::-1]))


@converted("aten.unsqueeze_copy.default")
def _unsqueeze(g: Graph, a: Arguments) -> str:
    dim = int(a["dim"])
    return str(g.op("Unsqueeze", a.tensor("self"), g.ints([dim if dim >= 0 else dim + a.rank() + 1])))


@converted("aten.squeeze_copy.dim", "aten.squeeze_copy.dims")
def _squeeze(g: Graph, a: Arguments) -> str:
    shape = a.value("self").shape
    gone = [d for d in a.dims() if shape and isinstance(shape[d], int) and shape[d] == 1]
    return str(
        g.op("Squeeze", a.tensor("self"), g.ints(gone)) if gone else g.op("Identity", a.tensor("self"))
    )


@converted("aten.expand_copy.default")
def _expand(g: Graph, a: Arguments) -> str:
    sizes = [1 if isinstance(size, int) and size == -1 else size for size in a["size"]]
    return str(g.op("Expand", a.tensor("self"), g.ints(sizes)))


@converted("aten.repeat.default")
def _repeat(g: Graph, a: Arguments) -> str:
    value, more = a.tensor("self"), len(a["repeats"]) - a.rank()
    if more:
        value = g.op("Unsqueeze", value, g.ints(list(range(more))))
    return str(g.op("Tile", value, g.ints(a["repeats"])))


@converted("aten.slice_copy.Tensor")
def _slice(g: Graph, a: Arguments) -> str:
    start, end = 0 if a["start"] is None else a["start"], _LAST if a["end"] is None else a["end"]
    return str(
        g.op(
            "Slice", a.tensor("self"), g.ints([start]), g.ints([end]), g.ints([a.dim()]), g.ints([a["step"]])
        )
    )


@converted("aten.select_copy.int")
def _select(g: Graph, a: Arguments) -> str:
    return str(g.op("Gather", a.tensor("self"), g.tensor(a["index"], torch.int64), axis=a.dim()))


@converted("aten.cat.default")
def _cat(g: Graph, a: Arguments) -> str:
    rank = a.result.dim()
    parts = [
        t for t in a["tensors"] if t.meta["val"].dim() == rank
    ]  # PyTorch allows empty vectors among them
    dim = int(a["dim"])
    return str(
        g.op("Concat", *(g.tensor(t, a.result.dtype) for t in parts), axis=dim if dim >= 0 else dim + rank)
    )


@converted("aten.split_with_sizes_copy.default")
def _split(g: Graph, a: Arguments) -> list[str | None]:
    sizes = a["split_sizes"]
    return list(
        g.op("Split", a.tensor("self"), g.ints(sizes), outputs=len(sizes), axis=a.dim())
        if len(sizes) > 1
        else [g.op("Identity", a.tensor("self"))]
    )


@converted("aten.flip.default")
def _flip(g: Graph, a: Arguments) -> str:
    dims = a.dims("dims")
    steps = g.ints([-1] * len(dims))
    return str(g.op("Slice", a.tensor("self"), steps, g.ints([-_LAST] * len(dims)), g.ints(dims), steps))


@converted("aten.constant_pad_nd.default")
def _pad(g: Graph, a: Arguments) -> str:
    pads, rank = list(a["pad"]), a.rank()
    pairs = [(0, 0)] * (rank - len(pads) // 2) + list(zip(pads[-2::-2], pads[::-2], strict=True))
    amounts = g.ints([front for front, _ in pairs] + [back for _, back in pairs])
    return str(
        g.op("Pad", a.tensor("self"), amounts, g.constant(a["value"], a.result.dtype), mode="constant")
    )


@converted("aten.embedding.default")
def _embedding(g: Graph, a: Arguments) -> str:
    return str(g.op("Gather", a.tensor("weight"), a.tensor("indices"), axis=0))


@converted("aten.index_select.default")
def _index_select(g: Graph, a: Arguments) -> str:
    if not a.rank() or not a.rank("index"):
        raise UnsupportedError("numbers without dimensions")
    return str(g.op("Gather", a.tensor("self"), a.tensor("index"), axis=a.dim()))


@converted("aten.gather.default")
def _gather(g: Graph, a: Arguments) -> str:
    _alike(a)
    return str(g.op("GatherElements", a.tensor("self"), a.tensor("index"), axis=a.dim()))


def _alike(a: Arguments) -> None:
    if not a.rank() or a.rank("index") != a.rank():
        raise UnsupportedError("a tensor and an index of different ranks")


@converted("aten.scatter.src", "aten.scatter.value", "aten.scatter_add.default")
def _scatter(g: Graph, a: Arguments) -> str:
    _alike(a)
    index, source = a.tensor("index"), a.get("src")
    if source is None:
        source = g.op("Expand", g.constant(a["value"], a.result.dtype), g.op("Shape", index))
    elif list(source.meta["val"].shape) != list(a.value("index").shape):
        raise UnsupportedError("an index smaller than its source")
    else:
        source = g.tensor(source, a.result.dtype)
    adds = "add" if "scatter_add" in str(a.node.target) else None
    return str(g.op("ScatterElements", a.tensor("self"), index, source, axis=a.dim(), reduction=adds))


def _indices(g: Graph, a: Arguments) -> tuple[int, list[str], int]:
    """The first indexed dimension, the indices side by side, and the rank of what they say together."""
    given = list(a["indices"])
    at = [dim for dim, index in enumerate(given) if index is not None]
    if not at or at != list(range(at[0], at[-1] + 1)):
        raise UnsupportedError("indexed dimensions that are not side by side")
    values = [given[dim].meta["val"] for dim in at]
    if any(value.dtype not in (torch.int64, torch.int32) for value in values):
        raise UnsupportedError("an index of truth values: the result's extents depend on its content")
    return at[0], [g.tensor(given[dim], torch.int64) for dim in at], max(value.dim() for value in values)


def _stacked(g: Graph, indices: list[str]) -> str:
    """Indices of common extents, with a last dimension that goes over them."""
    total = g.op("Shape", indices[0]) if len(indices) == 1 else g.op("Shape", _broadcast(g, indices))
    wide = [i if len(indices) == 1 else g.op("Expand", i, total) for i in indices]
    parts = [g.op("Unsqueeze", i, g.ints([-1])) for i in wide]
    return parts[0] if len(parts) == 1 else str(g.op("Concat", *parts, axis=-1))


def _broadcast(g: Graph, indices: list[str]) -> str:
    total = indices[0]
    for index in indices[1:]:
        total = g.op("Add", total, index)
    return total


def _to_front(rank: int, first: int, count: int) -> list[int]:
    moved = list(range(first, first + count))
    return moved + [dim for dim in range(rank) if dim not in moved]


@converted("aten.index.Tensor")
def _index(g: Graph, a: Arguments) -> str:
    first, indices, index_rank = _indices(g, a)
    if len(indices) == 1:
        return str(g.op("Gather", a.tensor("self"), indices[0], axis=first))
    rank, count = a.rank(), len(indices)
    front = (
        g.op("Transpose", a.tensor("self"), perm=_to_front(rank, first, count)) if first else a.tensor("self")
    )
    result = g.op("GatherND", front, _stacked(g, indices))
    if not first:
        return str(result)
    behind = index_rank + first
    order = [*range(index_rank, behind), *range(index_rank), *range(behind, index_rank + rank - count)]
    return str(g.op("Transpose", result, perm=order))


@converted("aten.index_put.default")
def _index_put(g: Graph, a: Arguments) -> str:
    first, indices, index_rank = _indices(g, a)
    rank, count = a.rank(), len(indices)
    values = a.tensor("values", a.result.dtype)
    target = a.tensor("self")
    order = _to_front(rank, first, count)
    if first:
        target = g.op("Transpose", target, perm=order)
        # What is put has the indexed dimensions in the place of `first`.
        if a.rank("values") != rank - count + index_rank:
            raise UnsupportedError("values of fewer dimensions behind a dimension that is not indexed")
        values = g.op("Transpose", values, perm=_to_front(a.rank("values"), first, index_rank))
    places = _stacked(g, indices)
    rows = g.op("Shape", places, start=0, end=index_rank)
    rest = g.op("Shape", target, start=count)
    wide = g.op("Expand", values, g.op("Concat", rows, rest, axis=0))
    result = g.op("ScatterND", target, places, wide, reduction="add" if a["accumulate"] else None)
    if first:
        result = g.op("Transpose", result, perm=[order.index(dim) for dim in range(rank)])
    return str(result)


@converted("aten.slice_scatter.default")
def _slice_scatter(g: Graph, a: Arguments) -> str:
    dim, rank = a.dim(), a.rank()
    order = _to_front(rank, dim, 1)
    target = g.op("Transpose", a.tensor("self"), perm=order)
    source = g.op("Transpose", a.tensor("src", a.result.dtype), perm=order)
    bounds = [0 if a["start"] is None else a["start"], _LAST if a["end"] is None else a["end"]]
    rows = g.op("Range", g.constant(0, torch.int64), g.extent(target, 0), g.constant(1, torch.int64))
    rows = g.op("Slice", rows, g.ints([bounds[0]]), g.ints([bounds[1]]), g.ints([0]), g.ints([a["step"]]))
    result = g.op("ScatterND", target, g.op("Unsqueeze", rows, g.ints([-1])), source)
    return str(g.op("Transpose", result, perm=[order.index(d) for d in range(rank)]))


@converted("aten.copy.default")
def _copy(g: Graph, a: Arguments) -> str:
    return str(g.op("Expand", a.tensor("src", a.result.dtype), g.op("Shape", a.tensor("self"))))


@converted("aten.full.default", "aten.full_like.default")
def _full(g: Graph, a: Arguments) -> str:
    number = g.tensor(a["fill_value"], a.result.dtype)
    sizes = a.get("size")
    return str(g.op("Expand", number, g.op("Shape", a.tensor("self")) if sizes is None else g.ints(sizes)))


@converted("aten.scalar_tensor.default")
def _scalar(g: Graph, a: Arguments) -> str:
    return str(g.op("Identity", g.tensor(a["s"], a.result.dtype)))


@converted("aten.arange.start_step")
def _arange(g: Graph, a: Arguments) -> str:
    dtype, bounds = a.result.dtype, [a[name] for name in ("start", "end", "step")]
    if not any(isinstance(bound, torch.fx.Node) for bound in bounds):
        return g.constant(torch.arange(*bounds, dtype=dtype))
    if dtype not in (torch.int64, torch.int32):
        raise UnsupportedError("a range of floats whose length varies: each step would round")
    return str(g.op("Range", *(_number(g, bound, dtype) for bound in bounds)))


def _number(g: Graph, value: Any, dtype: torch.dtype) -> str:
    if isinstance(value, float) and value != int(value):
        raise UnsupportedError("a range of integers between floats")
    return g.tensor(int(value) if isinstance(value, float) else value, dtype)


@converted("aten.tril.default", "aten.triu.default")
def _triangle(g: Graph, a: Arguments) -> str:
    upper = int("triu" in str(a.node.target))
    return str(g.op("Trilu", a.tensor("self"), g.constant(a["diagonal"], torch.int64), upper=upper))
