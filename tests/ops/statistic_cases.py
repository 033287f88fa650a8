"""Operator calls whose results are chosen, counted or looked up: order statistics, searches, histograms."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tests.ops.operator_case import OperatorCase as Case
from tests.ops.sample_tensors import ALL, FLOATS, INF, INTEGERS, NAN, channels_last, distinct, special, values


def special_functions() -> Iterator[Case]:
    """Functions of one number that integrals or series define."""
    for op in ["erfc", "erfinv", "lgamma", "digamma", "i0"]:
        for dtype in ALL:
            # float16 holds every result, and integers have values that the function is defined for.
            x = values((3, 5), dtype) / 8 if dtype.is_floating_point else values((3, 5), dtype)
            yield Case(op, "out", (x,))
        yield Case(op, "out", (channels_last((2, 3, 2, 2)) / 5,))
        yield Case(op, "out", (values((), torch.float64),))
        yield Case(op, "out", (values((0, 3)),))
    line = torch.linspace(-12, 80, 921, dtype=torch.float64) + 1 / 128
    unit = torch.linspace(-1, 1, 801, dtype=torch.float64)
    for op in ["erfc", "lgamma", "digamma", "i0"]:
        yield Case(op, "out", (line,))
        yield Case(op, "out", (line[line > 0.5].float(),))
    yield Case("erfinv", "out", (unit,))
    yield Case("erfinv", "out", (unit.float(),))
    yield Case("erfinv", "out", (torch.tensor([1e-300, 1 - 1e-15, -1 + 1e-12], dtype=torch.float64),))
    for op in ["erfc", "erfinv", "lgamma", "digamma", "i0"]:
        for dtype in [torch.float32, torch.float64]:
            yield Case(op, "out", (torch.tensor([0.0, -0.0, NAN, INF, -INF, -1.0, 1.0, 2.0], dtype=dtype),))


def bessel_and_zeta() -> Iterator[Case]:
    """Functions that differential equations and series define."""
    line = torch.tensor([0.0, -0.0, 1e-9, 0.3, 1.0, -1.0, 2.4, 4.99, -7.0, 12.5, 29.0, 31.0, 80.0])
    bessel = [
        *(f"special_bessel_{f}" for f in ["j0", "j1", "y0", "y1"]),
        *(f"special_modified_bessel_{f}" for f in ["i0", "i1"]),
        *(f"special_{f}" for f in ["i0e", "i1", "i1e"]),
    ]
    for op in bessel:
        # PyTorch computes j and y, and trigamma below, to nine digits only in float64; tests of the kernels
        # hold them against their definitions.
        is_rough = op[-2] in "jy"
        for dtype in ALL:
            if not (is_rough and dtype == torch.float64):
                yield Case(op, "out", (values((3, 5), dtype),))
        scale = 1 if op.endswith("e") or "_bessel_" in op else 0.05
        yield Case(op, "out", (line if is_rough else line.double() * scale,))
        yield Case(op, "out", (torch.tensor([INF, -INF, NAN]),))
    yield Case("special_bessel_j0", "out", (channels_last((2, 3, 2, 2)),))
    positive = torch.tensor([0.25, 0.5, 1.0, 2.5, 7.0, 30.0])
    for n in [0, 1, 2, 3, 5]:
        yield Case("polygamma", "out", (n, positive))
        yield Case("polygamma", "out", (n, torch.tensor([1, 2, 5])))
        yield Case("polygamma", "out", (n, torch.tensor([0.0, NAN, -0.25])))
        if n != 1:
            yield Case("polygamma", "out", (n, positive.double()))
    yield Case("polygamma", "out", (-1, positive))
    orders = torch.tensor([1.0, 0.5, 1.5, 2.0, 3.0, 7.0, 2.0, 2.0, 3.0])
    places = torch.tensor([1.0, 1.0, 0.75, 1.0, 2.5, 3.0, 0.0, -1.0, -0.5])
    yield Case("special_zeta", "out", (orders, places))
    yield Case("special_zeta", "out", (orders.double()[:, None], places.double()))


def number_pairs() -> Iterator[Case]:
    """Functions of two numbers outside arithmetic."""
    for op in ["hypot", "copysign", "nextafter", "heaviside", "gcd", "lcm"]:
        for dtype in ALL:
            yield Case(op, "out", (values((3, 4), dtype), values((3, 4), dtype, 3)))
        for dtype in [torch.float32, torch.float64, torch.int64]:
            yield Case(op, "out", (values((2, 1, 3), dtype), values((4, 1), dtype, 5)))
            yield Case(op, "out", (values((0, 3), dtype), values((3,), dtype, 5)))
            yield Case(op, "out", (values((), dtype), values((), dtype, 5)))
        yield Case(op, "out", (values((3, 4), torch.int8), values((3, 4), torch.int32, 5)))
        yield Case(op, "out", (values((3, 4), torch.float16), values((3, 4), torch.float32, 5)))
        yield Case(op, "out", (special(), special().flip(0)), note=" special")
        yield Case(op, "out", (special(torch.float64), special(torch.float64).flip(0)), note=" special")
        yield Case(op, "out", (values((2, 3)), values((4,))), note=" misfit")
    zeros = torch.tensor([0.0, -0.0, 0.0, -0.0])
    yield Case("nextafter", "out", (zeros, torch.tensor([-0.0, 0.0, 1.0, 1.0])), note=" zeros")
    yield Case("copysign", "out", (values((4,)), zeros), note=" zeros")
    for dtype in [*FLOATS, *INTEGERS, torch.bool]:
        for number in [-2, 1.5]:
            yield Case("copysign", "Scalar_out", (values((3, 4), dtype), number))


def order_statistics() -> Iterator[Case]:
    """Elements by their rank; positions are compared where no two elements are equal."""
    for dtype in ALL:
        x = distinct((4, 6), dtype)
        for dim in [0, -1]:
            for keepdim in [False, True]:
                yield Case("median", "dim_values", (x, dim, keepdim))
                yield Case("nanmedian", "dim_values", (x, dim, keepdim))
                yield Case("kthvalue", "values", (x, 3, dim, keepdim))
        yield Case("median", "out", (x,))
        yield Case("nanmedian", "out", (x,))
        # Few enough for eager's sort to keep equal elements in order.
        yield Case("mode", "values", (values((4, 6), dtype), 1))
        yield Case("mode", "values", (values((4, 6), dtype), 0, True))
    holed = distinct((4, 6), torch.float32)
    holed[1, 2] = holed[1, 4] = holed[3, :] = NAN
    for x in [holed, holed.double(), holed.half(), holed.t()]:
        yield Case("median", "dim_values", (x, 1), note=" NaN", outputs=2)
        yield Case("median", "out", (x,), note=" NaN")
        yield Case("nanmedian", "out", (x,), note=" NaN")
        yield Case("nanmedian", "dim_values", (x, 0), note=" NaN", outputs=1)
        yield Case("kthvalue", "values", (x[:3], 5, 1), note=" NaN", outputs=1)
    tied = values((3, 40), torch.int32)
    yield Case("median", "dim_values", (tied, 1), note=" ties", outputs=1)
    yield Case("kthvalue", "values", (tied, 17, 1), note=" ties", outputs=1)
    for op, overload, more in [
        ("median", "dim_values", (0,)),
        ("nanmedian", "dim_values", (0,)),
        ("mode", "values", (0,)),
        ("kthvalue", "values", (1, 0)),
    ]:
        for shape in [(), (0, 3), (3, 0)]:
            yield Case(op, overload, (values(shape), *more))
        yield Case(op, overload, (values((3, 4)), *more[:-1], 2), note=" no such dimension")
    yield Case("median", "out", (values((0,)),))
    yield Case("median", "out", (values(()),))
    for k in [0, 7, -1]:
        yield Case("kthvalue", "values", (values((4, 6)), k))


def running_results() -> Iterator[Case]:
    """Running extremes and sums of exponentials."""
    for op in ["cummax", "cummin", "logcumsumexp"]:
        for dtype in ALL:
            yield Case(op, "out", (values((4, 6), dtype), 1))
            yield Case(op, "out", (values((4, 6), dtype), 0))
        yield Case(op, "out", (values((3, 700)), 1))
        yield Case(op, "out", (channels_last((2, 3, 4, 5)), -3))
        yield Case(op, "out", (special(), 0), note=" special")
        yield Case(op, "out", (torch.tensor([1.0, NAN, 2.0, NAN, 0.5, INF]), 0), note=" NaN")
        for shape in [(), (0, 3), (3, 0)]:
            yield Case(op, "out", (values(shape), 0))
        yield Case(op, "out", (values((3, 4)), 2), note=" no such dimension")


def searches() -> Iterator[Case]:
    """Places in sorted numbers."""
    for dtype in ALL:
        edges, x = values((9,), dtype).sort().values, values((3, 4), dtype, 4)
        for right in [False, True]:
            yield Case("bucketize", "Tensor_out", (x, edges), {"right": right})
            yield Case("searchsorted", "Tensor_out", (edges, x), {"right": right, "out_int32": True})
            yield Case("bucketize", "Scalar_out", (1, edges), {"right": right})
            yield Case("searchsorted", "Scalar_out", (edges, 1.1), {"right": right})
    rows, x = values((2, 3, 5)).sort().values, values((2, 3, 4), seed=2)
    for options in [{}, {"side": "right"}, {"side": "left"}, {"side": "left", "right": True}, {"side": "up"}]:
        yield Case("searchsorted", "Tensor_out", (rows, x), dict(options))
    unsorted = values((2, 3, 5), seed=9)
    yield Case("searchsorted", "Tensor_out", (unsorted, x), {"sorter": unsorted.argsort()})
    yield Case(
        "searchsorted", "Tensor_out", (unsorted, x), {"sorter": unsorted.argsort() + 1}, note=" outside"
    )
    yield Case("searchsorted", "Tensor_out", (unsorted, x), {"sorter": unsorted.argsort().int()})
    yield Case("searchsorted", "Tensor_out", (unsorted, x), {"sorter": unsorted.argsort()[0]}, note=" misfit")
    holed = torch.tensor([1.0, 2.0, 2.0, NAN])
    for right in [False, True]:
        yield Case("searchsorted", "Tensor_out", (holed, special()), {"right": right}, note=" NaN")
    # Sequence and values of two dtypes compare in their common one.
    yield Case("bucketize", "Tensor_out", (values((7,)), values((5,), torch.int32).sort().values))
    yield Case("bucketize", "Tensor_out", (values((7,), torch.float64), values((5,)).sort().values))
    yield Case("bucketize", "Tensor_out", (torch.tensor(0.1, dtype=torch.float64), torch.tensor([0.0, 0.1])))
    yield Case("bucketize", "Tensor_out", (values((7,)), values((2, 5))), note=" misfit")
    yield Case("searchsorted", "Tensor_out", (values((2, 5)), values((3, 4))), note=" misfit")
    yield Case("searchsorted", "Tensor_out", (values((2, 5)), values(())), note=" misfit")
    yield Case("searchsorted", "Tensor_out", (values(()), values((4,))), note=" misfit")
    for shapes in [((0,), (3,)), ((5,), (0,)), ((2, 0), (2, 3)), ((2, 5), (2, 0)), ((5,), ())]:
        yield Case("searchsorted", "Tensor_out", tuple(values(s).sort().values for s in shapes))


def counts() -> Iterator[Case]:
    """Histograms, counts, repeats, and elements put at positions."""
    for dtype in [torch.float32, torch.float64, torch.int32]:
        x = values((5, 8), dtype)
        for options in [(), (7,), (10, -1, 2.5), (4, 2, 2), (0,), (-1,), (4, 3, 1), (4, 0, INF)]:
            yield Case("histc", "out", (x, *options))
    yield Case("histc", "out", (special()[:5],), note=" NaN")
    yield Case("histc", "out", (special(), 4, -3, 3), note=" NaN")
    yield Case("histc", "out", (torch.ones(6), 4))
    yield Case("histc", "out", (values((0,)), 4))
    yield Case("histc", "out", (values(()), 4))
    for dtype in [*INTEGERS, torch.bool, torch.float32]:
        x = values((30,), dtype, low=0)
        yield Case("bincount", "out", (x,), largest=(40,))
        yield Case("bincount", "out", (x, None, 17), largest=(40,))
        yield Case("bincount", "out", (x, values((30,), seed=2)), largest=(40,))
        yield Case("bincount", "out", (x, values((30,), torch.float64, seed=2)), largest=(40,))
        yield Case("bincount", "out", (x, values((30,), torch.int16, seed=2)), largest=(40,))
        yield Case("repeat_interleave", "Tensor_out", (values((6,), dtype, low=0),), largest=(60,))
    x = values((30,), torch.int64, low=0)
    yield Case("bincount", "out", (x - 3,), note=" negative")
    yield Case("bincount", "out", (x, None, -1))
    yield Case("bincount", "out", (x.reshape(5, 6),))
    yield Case("bincount", "out", (x, values((29,))), note=" misfit")
    yield Case("bincount", "out", (x[:0], None, 3), largest=(5,))
    repeats = torch.tensor([2, 0, 3])
    yield Case("repeat_interleave", "Tensor_out", (repeats,), {"output_size": 5}, largest=(9,))
    yield Case("repeat_interleave", "Tensor_out", (repeats,), {"output_size": 6}, note=" misfit")
    yield Case("repeat_interleave", "Tensor_out", (repeats - 1,), note=" negative")
    yield Case("repeat_interleave", "Tensor_out", (repeats[None],))
    yield Case("repeat_interleave", "Tensor_out", (repeats[:0],), largest=(2,))
    at = torch.tensor([[0, -1], [5, 5]])
    for dtype in ALL:
        x = values((3, 4), dtype)
        yield Case("put", "out", (x, at[:, 0], values((2,), dtype, 3)))
        yield Case("put", "out", (x, at, values((4,), dtype, 3), True))
    yield Case("put", "out", (channels_last((2, 3, 2, 2)), at[0], values((1, 2))))
    yield Case("put", "out", (values((3, 4)), at, values((3,))), note=" misfit")
    yield Case("put", "out", (values((3, 4)), at + 7, values((4,))), note=" outside")
    yield Case("put", "out", (values((0,)), at[0], values((2,))), note=" outside")
    yield Case("put", "out", (values((0,)), at[0, :0], values((0,))))
    yield Case("put", "out", (values((3, 4)), at.int(), values((4,))))
    yield Case("put", "out", (values((3, 4)), at, values((4,), torch.float64)))
    yield Case("view_as_real_copy", "out", (torch.complex(values((3, 4)), values((3, 4), seed=1)),))
    yield Case("view_as_real_copy", "out", (torch.complex(values((0, 4)), values((0, 4))),))
    yield Case("view_as_real_copy", "out", (values((3, 4)),))


def incomplete_gammas() -> Iterator[Case]:
    """Both functions over shapes from tiny to huge, near the middle and far off, and at the ends."""
    shapes = torch.tensor([1e-3, 0.3, 0.5, 1.0, 2.5, 10.0, 19.5, 20.5, 150.0, 3000.0, 2e5, 3e8])
    ratios = torch.tensor([1e-4, 0.2, 0.7, 0.99, 1.0, 1.001, 1.1, 2.0, 10.0])
    a, x = shapes[:, None], shapes[:, None] * ratios
    ends = torch.tensor([0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 1e-30])
    for op, exact in [("igamma", torch.special.gammainc), ("igammac", torch.special.gammaincc)]:
        # Eager's float32 loses digits for large shapes, and its float64 for shapes from 20 on.
        wide = lambda a, x, f=exact: f(a.double(), x.double()).float()  # noqa: E731
        yield Case(op, "out", (a[2:6], x[2:6]))
        yield Case(op, "out", (a, x), function=wide)
        yield Case(op, "out", (a[:6].double(), x[:6].double()))
        yield Case(op, "out", (a[:6].half(), x[:6].half()))
        yield Case(op, "out", (a[:6].bfloat16(), x[:6].bfloat16()))
        yield Case(op, "out", (ends[:, None], ends), note=" ends")
        yield Case(op, "out", (values((2, 0)).abs(), values((1, 1)).abs()))
        yield Case(op, "out", (values((3, 4), torch.int32), values((3, 4), torch.int32)))
        yield Case(op, "out", (values((3, 4)), values((5,))), note=" misfit")


def reduced_slices() -> Iterator[Case]:
    """index_reduce, and positions of a stated number of elements that are not zero."""
    for dtype in [torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8]:
        x, source = values((4, 3), dtype), values((5, 3), dtype, seed=2)
        for reduce in ["prod", "mean", "amax", "amin"]:
            for include in [True, False]:
                at = torch.tensor([3, 0, 3, 3, 1])
                yield Case("index_reduce", "out", (x, 0, at, source, reduce), {"include_self": include})
    x = channels_last((2, 3, 2, 2))
    yield Case("index_reduce", "out", (x, -3, torch.tensor([2, 2]), values((2, 2, 2, 2)), "mean"))
    yield Case(
        "index_reduce", "out", (values((3,)), 0, torch.tensor([0, 0]), torch.tensor([NAN, 1.0]), "amax")
    )
    yield Case(
        "index_reduce", "out", (values((3,)), 0, torch.tensor([], dtype=torch.int64), values((0,)), "prod")
    )
    yield Case(
        "index_reduce", "out", (values((3,)), 0, torch.tensor([3]), values((1,)), "prod"), note=" outside"
    )
    yield Case(
        "index_reduce", "out", (values((3,)), 0, torch.tensor([-1]), values((1,)), "prod"), note=" outside"
    )
    yield Case(
        "index_reduce", "out", (values((3, 2)), 0, torch.tensor([1]), values((1, 3)), "prod"), note=" misfit"
    )
    yield Case(
        "index_reduce", "out", (values((3,)), 0, torch.tensor([1]), values((1,)), "sum"), note=" unknown"
    )
    for x in [
        values((3, 4)),
        values((3, 4), torch.bool),
        values((2, 3, 2), torch.int8),
        values(()),
        values((0, 2)),
    ]:
        for size in [0, 2, 20]:
            yield Case("nonzero_static", "out", (x,), {"size": size, "fill_value": -7})
    yield Case("nonzero_static", "out", (values((3,)),), {"size": -1}, note=" negative")


def distinct_elements() -> Iterator[Case]:
    """Distinct elements and slices, their places and counts."""
    zeros = torch.tensor([3.0, NAN, 1.0, NAN, 3.0, 1.0, -0.0, 0.0])
    tensors = [values((7,), dtype) for dtype in ALL] + [zeros, values((3, 4)), values(()), values((0, 3))]
    tensors += [channels_last((2, 3, 2, 2)), values((70, 9), torch.int8)]
    for x in tensors:
        n, shape = x.numel(), tuple(x.shape)
        for places, counts in [(True, True), (False, True), (True, False)]:
            room = [(n,), shape if places else (0,), (n,)]
            yield Case("_unique2", "out", (x, True, places, counts), largest=room)
            yield Case("unique_consecutive", "out", (x, places, counts), largest=room)
    for dtype in [torch.float32, torch.int16, torch.bool]:
        x = values((6, 2), dtype)[torch.tensor([0, 0, 3, 3, 1, 0])]
        for y, dim in [(x, 0), (x.t(), 1), (x.t().contiguous(), -1), (x.reshape(3, 2, 2), 1)]:
            n = y.shape[dim]
            room = [tuple(y.shape), (n,), (n,)]
            yield Case("unique_dim", "out", (y, dim, True, True, True), largest=room)
            yield Case("unique_dim_consecutive", "out", (y, dim, True, True), largest=room)
            yield Case("unique_consecutive", "out", (y, False, False, dim), largest=room)
    # Eager PyTorch takes dimension 0 of a vector, by this name alone, for no dimension.
    for dim, room in [(0, [(8,), (0,), (0,)]), (-1, [(8,), (8,), (8,)])]:
        yield Case("unique_consecutive", "out", (zeros, False, False, dim), largest=room)
    yield Case("unique_dim", "out", (values((0, 3)), 0, True, True, True), largest=[(0, 3), (0,), (0,)])
    yield Case("unique_dim", "out", (values((3, 0)), 0), note=" empty slices")
    yield Case("unique_dim", "out", (values((3, 2)), 2), note=" no such dimension")


def every_statistic() -> Iterator[Case]:
    """All of these."""
    for table in [
        special_functions,
        bessel_and_zeta,
        number_pairs,
        order_statistics,
        running_results,
        searches,
        counts,
        incomplete_gammas,
        reduced_slices,
        distinct_elements,
    ]:
        yield from table()
