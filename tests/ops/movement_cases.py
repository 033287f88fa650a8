"""Operators that move and order elements, on shapes that cross the borders of blocks and chunks, in every
memory order and element size, with positions at the edges. Kernels move more than 256 elements in blocks and
more than 16 Ki in chunks, so most tensors here are larger than either.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tests.ops.operator_case import OperatorCase as Case
from tests.ops.sample_tensors import ALL, INF, NAN, channels_last, distinct, values

SIZES = [torch.uint8, torch.float16, torch.float32, torch.int64, torch.complex64]


def sample(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Values, complex ones too."""
    if dtype == torch.complex64:
        return torch.complex(values(shape), values(shape, seed=1))
    return values(shape, dtype)


def places(shape: tuple[int, ...], below: int, seed: int = 0) -> torch.Tensor:
    """Positions with repeats, the first and the last one among them."""
    index = torch.randint(0, below, shape, generator=torch.Generator().manual_seed(seed))
    index.view(-1)[:2] = torch.tensor([0, below - 1])[: index.numel()]
    return index


def permuted(x: torch.Tensor) -> torch.Tensor:
    """The same tensor with its dimensions in reverse order in memory."""
    dims = tuple(range(x.dim()))[::-1]
    return x.permute(dims).contiguous().permute(dims)


def mapped() -> Iterator[Case]:
    """Every index of the output names one of the input: pads, nearest, index_select, roll, repeat."""
    for dtype in SIZES:
        x = sample((2, 3, 40, 90), dtype)
        for layout in [x, x.contiguous(memory_format=torch.channels_last)]:
            yield Case("reflection_pad2d", "out", (layout, [5, 3, 2, 39]))
            yield Case("replication_pad2d", "out", (layout, [1, 0, 30, 2]))
            yield Case("index_select", "out", (layout, 3, places((300,), 90)))
            yield Case("index_select", "out", (layout, 1, places((5,), 3)))
            yield Case("index_select", "out", (layout, 0, torch.tensor([1, 1, 0], dtype=torch.int32)))
            yield Case("roll", "out", (layout, [7, -50], [-1, 2]))
            yield Case("roll", "out", (layout, [12345], []), note=" flat")
            yield Case("repeat", "out", (layout, [1, 2, 1, 3]))
            yield Case("index", "Tensor_out", (layout, [None, None, None, places((2000,), 90) - 90]))
            if dtype not in (torch.complex64, torch.int64):
                yield Case("upsample_nearest2d", "out", (layout, [80, 180]))
                yield Case("upsample_nearest2d", "out", (layout, [17, 301]))
                yield Case("_upsample_nearest_exact2d", "out", (layout, [55, 60]))
    for x in [values((3, 4, 60, 40)), channels_last((3, 4, 60, 40))]:
        for pads in [[7, -3, 60, 2], [0, 0, 0, 0, 5, 5], [-40, 9], [-1, -2, -3, -4]]:
            yield Case("constant_pad_nd", "out", (x, pads, 1.5))
        yield Case("pixel_shuffle", "out", (x, 2))
        yield Case("pixel_unshuffle", "out", (x, 5))
        yield Case("stack", "out", ([x, x * 2, x * 3], 1))
        yield Case("stack", "out", ([x, x * 2, x * 3], -1))
        yield Case("split_copy", "Tensor_out", (x, 17, 2))
        yield Case("unbind_copy", "int_out", (x, 3))
        yield Case("flip", "out", (x, [3]))
        yield Case("flip", "out", (x, [0, 2]))
    yield Case("repeat", "out", (values((300,)), [2, 3, 70]))
    yield Case("repeat", "out", (values((2, 1, 3)), [2, 0, 1]), note=" nothing")
    yield Case("repeat", "out", (torch.tensor(2.5), [3, 100]), note=" 0-d")
    yield Case("roll", "out", (values((0, 3)), [1], [1]), note=" empty")
    yield Case("roll", "out", (values((0, 3)), [1], []), note=" empty")
    yield Case("roll", "out", (torch.tensor(1.0), [2], []), note=" 0-d")
    yield Case("roll", "out", (values((2, 3)), [1, 2], []), note=" two shifts")
    yield Case("index_select", "out", (torch.tensor(1.5), 0, torch.tensor([0])), note=" 0-d")
    yield Case(
        "index_select", "out", (values((3, 4)), 1, torch.tensor([], dtype=torch.int64)), note=" nothing"
    )
    yield Case("index_select", "out", (values((3, 0)), 1, torch.tensor([0])), note=" of nothing")
    yield Case("index_select", "out", (values((70000,)), 0, places((40000,), 70000)))
    yield Case("reflection_pad1d", "out", (values((3, 20000)), [19999, 7]))
    yield Case("replication_pad3d", "out", (values((2, 3, 5, 7, 9)), [1, 2, 0, 3, 4, 5]))
    yield Case("upsample_nearest1d", "out", (values((2, 3, 200)), [30001]))
    yield Case("upsample_nearest3d", "out", (values((2, 3, 4, 5, 6)), [9, 11, 70]))


def named() -> Iterator[Case]:
    """Elements by positions: gather, the scatters, index, index_put."""
    for dtype in SIZES:
        x = sample((150, 140), dtype)
        for layout in [x, permuted(x)]:
            for dim in [0, 1]:
                index = places((130, 120), x.shape[dim])
                yield Case("gather", "out", (layout, dim, index))
                yield Case("gather", "out", (layout, dim, permuted(index)), note=" permuted")
                if dtype != torch.complex64:
                    yield Case("scatter", "value_out", (layout, dim, index, 3))
        one_to_one = torch.stack([distinct((140,), torch.int64)] * 150)
        yield Case("scatter", "src_out", (x, 1, one_to_one, sample((150, 140), dtype)))
        yield Case("scatter", "src_out", (x, 0, distinct((150,), torch.int64)[:, None].repeat(1, 140), x * 1))
    for dtype in ALL:
        x, src = values((60, 70), dtype), values((60, 70), dtype, seed=4)
        for dim in [0, 1]:
            index = places((50, 60), x.shape[dim], 1)
            if dtype not in (torch.float16, torch.bfloat16):
                yield Case("scatter_add", "out", (x, dim, index, src))
            for reduce in ["amax", "amin"]:
                for include in [True, False]:
                    args = (permuted(x), dim, index, permuted(src), reduce)
                    yield Case("scatter_reduce", "two_out", args, {"include_self": include})
    for include in [True, False]:
        for dim in [0, 1]:
            args = (
                values((60, 400)),
                dim,
                places((50, 390), [60, 400][dim]),
                values((50, 390), seed=2),
                "mean",
            )
            yield Case("scatter_reduce", "two_out", args, {"include_self": include})
    for x in [values((40, 30, 50)), permuted(values((40, 30, 50)))]:
        i, j, k = places((700,), 40), places((700,), 30) - 30, places((3, 1), 50)
        yield Case("index", "Tensor_out", (x, [i, j]))
        yield Case("index", "Tensor_out", (x, [None, j, places((700,), 50)]))
        yield Case("index", "Tensor_out", (x, [i, None, k]))
        yield Case("index", "Tensor_out", (x, [i, j, k]))
        yield Case("index", "Tensor_out", (x, [None, None, k]))
        yield Case("index_put", "out", (x, [i, j, places((700,), 50)], torch.tensor(2.0)))
        yield Case("index_put", "out", (x, [i, None, k], values((3, 700, 30)), True))
        yield Case("index_put", "out", (x, [None, j], values((40, 700, 50)), True))
        yield Case("index_put", "out", (x, [i], values((700, 30, 50)), True))
        yield Case("index_put", "out", (x, [distinct((40,), torch.int64)], values((40, 30, 50), seed=3)))
    empty = torch.empty(0, dtype=torch.int64)
    yield Case("index", "Tensor_out", (values((0, 3)), [empty]), note=" of nothing")
    yield Case("index", "Tensor_out", (values((0, 3)), [empty, empty]), note=" of nothing")
    yield Case("index", "Tensor_out", (values((0, 3)), [torch.tensor([0])]), note=" of nothing")
    yield Case("index_put", "out", (values((4, 3)), [empty], values((0, 3))), note=" nothing")
    yield Case("gather", "out", (torch.tensor(1.0), 0, torch.tensor(0)), note=" 0-d")
    yield Case("gather", "out", (values((3, 0)), 1, torch.empty(3, 0, dtype=torch.int64)), note=" empty")
    yield Case("scatter", "value_out", (torch.tensor(1.0), 0, torch.tensor(0), 7), note=" 0-d")
    outside = places((200, 100), 100)
    outside[199, 99] = 100
    yield Case("gather", "out", (values((200, 100)), 1, outside), note=" outside")
    yield Case("scatter_add", "out", (values((200, 100)), 1, outside, values((200, 100))), note=" outside")
    yield Case("index", "Tensor_out", (values((100,)), [outside]), note=" outside")
    yield Case("index_put", "out", (values((100, 2)), [outside[199]], torch.tensor(1.0)), note=" outside")
    yield Case("index_select", "out", (values((100, 2)), 0, outside[199]), note=" outside")


def ordered() -> Iterator[Case]:
    """Lines long enough for every way to order them; ties where positions are defined."""
    for dtype in [torch.float32, torch.float64, torch.float16, torch.int64, torch.int32, torch.int8]:
        for shape, dim in [((3, 1500), 1), ((1500, 3), 0), ((40, 300), -1)]:
            x = values(shape, dtype)
            for descending in [False, True]:
                yield Case(
                    "sort", "values_stable", (x,), {"stable": True, "dim": dim, "descending": descending}
                )
        if dtype not in (torch.float16, torch.int8):
            y = distinct((4, 3000), dtype)
            for k in [0, 1, 5, 40, 1500, 3000]:
                for largest in [False, True]:
                    yield Case("topk", "values", (y, k, 1, largest))
            yield Case("topk", "values", (y.T.contiguous(), 7, 0))
            yield Case("median", "dim_values", (distinct((5, 701), dtype), 1))
            yield Case("kthvalue", "values", (distinct((5, 701), dtype), 333, 1))
            yield Case("kthvalue", "values", (distinct((701, 5), dtype), 1, 0))
    wide = torch.arange(3000).flip(0) * (1 << 45) - (1 << 55)
    yield Case("sort", "values_stable", (wide,), {"stable": True})
    yield Case("topk", "values", (wide, 9))
    edges = torch.tensor([NAN, -0.0, INF, 0.0, -INF, 1e-40, -1e-40, NAN]).repeat(100)
    for descending in [False, True]:
        call = {"stable": True, "dim": 0, "descending": descending}
        yield Case("sort", "values_stable", (edges,), call, note=" signs")
    yield Case("topk", "values", (torch.arange(2000).to(torch.float32).neg() * 0 - 1, 0), note=" none")


def running() -> Iterator[Case]:
    """Running results along every dimension of every memory order, and more than a block of lines."""
    for x in [values((5, 300, 7)), permuted(values((5, 300, 7))), channels_last((2, 9, 17, 70))]:
        for dim in range(x.dim()):
            for name in ["cumsum", "cumprod"]:
                yield Case(name, "out", (x / 3, dim))
            for name in ["cummax", "cummin"]:
                yield Case(name, "out", (x, dim))
            yield Case("logcumsumexp", "out", (x, dim))
    for dtype in ALL:
        yield Case("cumsum", "out", (values((300, 70), dtype), 0))
    yield Case("cumsum", "out", (values((3, 0)), 1), note=" empty")
    yield Case("cumsum", "out", (values((6, 300), torch.float16), 1), {"dtype": torch.float32})


def filled() -> Iterator[Case]:
    """More than a chunk of numbers."""
    for dtype in [torch.float32, torch.float16, torch.int64, torch.int8, torch.bfloat16]:
        like = values((40001,), dtype)
        yield Case("full_like", "out", (like, 3))
    yield Case("arange", "start_out", (0.5, 40000.0, 1.5), {"dtype": torch.float32})
    yield Case("arange", "start_out", (70000, -3, -2), {"dtype": torch.int64})


def chosen() -> Iterator[Case]:
    """As many elements as the data says."""
    for dtype in ALL:
        x = values((7, 300, 9), dtype)
        mask = values((7, 300, 9), torch.bool)
        yield Case("nonzero", "out", (x,), largest=(x.numel(), 3))
        yield Case("masked_select", "out", (x, mask), largest=(x.numel(),))
        yield Case("masked_select", "out", (permuted(x), permuted(mask)), largest=(x.numel(),))
    yield Case("nonzero", "out", (values((40000,), torch.bool),), largest=(40000, 1))
    yield Case("masked_select", "out", (values((300, 1)), values((200,), torch.bool)), largest=(60000,))


def weighted() -> Iterator[Case]:
    """Resampling whose output has more than a chunk of rows, in either memory order. No cubic sums of
    float32: those of eager PyTorch are off by more than the tolerance in some of so many elements.
    """
    for dtype in [torch.float64, torch.float16]:
        for x in [values((2, 3, 40, 30), dtype), channels_last((2, 3, 40, 30), dtype)]:
            for align in [False, True]:
                yield Case("upsample_bicubic2d", "out", (x, [90, 71], align))
                yield Case("upsample_bicubic2d", "out", (x, [7, 300], align))
    yield Case("upsample_bilinear2d", "out", (values((2, 3, 40, 30)), [90, 3001], False))
    yield Case("upsample_bilinear2d", "out", (channels_last((2, 3, 40, 30)), [907, 71], False))
    yield Case("upsample_trilinear3d", "out", (values((2, 2, 5, 6, 7)), [11, 20, 40], False))
    yield Case("upsample_linear1d", "out", (values((3, 2, 500)), [9001], False))


def every_movement() -> Iterator[Case]:
    """The whole table."""
    for table in [mapped, named, ordered, running, filled, chosen, weighted]:
        yield from table()
