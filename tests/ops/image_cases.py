"""Calls of pooling and resampling operators on signals, images and volumes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from tests.ops.operator_case import OperatorCase as Case
from tests.ops.sample_tensors import FLOATS, INF, INTEGERS, NAN, channels_last, values


def _volumes_last(shape: tuple[int, ...]) -> torch.Tensor:
    return values(shape).contiguous(memory_format=torch.channels_last_3d)


def _with_nans(shape: tuple[int, ...]) -> torch.Tensor:
    """Several NaNs within one window, and a window of negative infinity."""
    x = values(shape)
    flat = x.view(-1)
    flat[[1, 3, 4]] = NAN
    flat[-9:] = -INF
    return x


# Kernel, stride, padding, ceil_mode and, for averages, count_include_pad and the divisor.
_WINDOWS: list[tuple[Any, ...]] = [
    ([2],),
    ([3, 2, 2], [2, 1, 2], [1, 1, 0]),
    ([3, 3, 2], [2, 2, 2], [1, 1, 1], True),
    ([9, 7, 7], [9, 7, 7], [0, 0, 0], True),
]


def pools() -> Iterator[Case]:
    """Windows in one to three dimensions: sliding and adaptive, averages and maxima."""
    volumes = [
        values((2, 3, 5, 6, 7)),
        _volumes_last((2, 3, 5, 6, 7)),
        values((3, 5, 6, 7)),
        values((0, 2, 5, 6, 7)),
    ]
    for x in volumes:
        for window in _WINDOWS:
            yield Case("avg_pool3d", "out", (x, *window))
            most = (*window[:3], [1], *window[3:]) if len(window) > 3 else window
            yield Case("max_pool3d_with_indices", "out", (x, *most))
        yield Case("max_pool3d_with_indices", "out", (x, [2, 2, 3], [1, 2, 1], [1, 0, 1], [2, 1, 2]))
        yield Case("avg_pool3d", "out", (x, [3, 3, 2], [2], [1], False, False))
        yield Case("avg_pool3d", "out", (x, [2], [], [0], False, True, -3))
        for size in [[1, 1, 1], [2, 3, 4], [7, 6, 9], [0, 2, 2]]:
            yield Case("_adaptive_avg_pool3d", "out", (x, size))
            yield Case("adaptive_max_pool3d", "out", (x, size))
    for x in [values((2, 3, 7, 5)), channels_last((2, 3, 7, 5)), values((3, 7, 5)), values((0, 3, 7, 5))]:
        for size in [[1, 1], [3, 2], [9, 5], [0, 2]]:
            yield Case("adaptive_max_pool2d", "out", (x, size))
    for x in [values((2, 3, 11)), values((3, 11)), values((0, 3, 11))]:
        yield Case("avg_pool1d", "out", (x, [3]))
        yield Case("avg_pool1d", "out", (x, [3], [2], [1], True))
        yield Case("avg_pool1d", "out", (x, [3], [2], [1], False, False))
        for size in [1, 4, 13]:
            yield Case("adaptive_avg_pool1d", "out", (x, [size]))
    yield from _pools_of_every_dtype()
    yield from _refused_pools()


def _pools_of_every_dtype() -> Iterator[Case]:
    volume, image = (1, 2, 4, 5, 6), (2, 7, 6)
    for dtype in FLOATS:
        yield Case("avg_pool1d", "out", (values(image, dtype), [2]))
        yield Case("_adaptive_avg_pool3d", "out", (values(volume, dtype), [2, 3, 4]))
        yield Case("adaptive_max_pool2d", "out", (values(image, dtype), [3, 4]))
        yield Case("adaptive_max_pool3d", "out", (values(volume, dtype), [2, 3, 4]))
        yield Case("adaptive_avg_pool1d", "out", (values(image, dtype), [4]))
    for dtype in [*FLOATS, torch.int64]:
        yield Case("max_pool3d_with_indices", "out", (values(volume, dtype), [2]))
    # Eager has no kernel for halves here.
    yield Case("avg_pool3d", "out", (values(volume, torch.float64), [2]))
    for operator, x in [("avg_pool2d", image), ("avg_pool3d", volume)]:
        yield Case(operator, "out", (values(x, torch.int64), [3], [2], [1]))
        yield Case(operator, "out", (values(x, torch.int32), [2]), note=" integers")
        yield Case(operator, "out", (values(x, torch.bool), [2]), note=" truth values")
    for dtype in INTEGERS:
        yield Case("adaptive_max_pool2d", "out", (values(image, dtype), [3, 4]), note=" integers")
    yield Case("max_pool2d_with_indices", "out", (_with_nans((2, 7, 6)), [3, 3], [1, 1]), note=" NaN")
    yield Case("max_pool3d_with_indices", "out", (_with_nans(volume), [2, 2, 3], [1]), note=" NaN")
    yield Case("adaptive_max_pool2d", "out", (_with_nans((2, 7, 6)), [2, 2]), note=" NaN")
    yield Case("adaptive_max_pool3d", "out", (_with_nans(volume), [2, 2, 2]), note=" NaN")
    yield Case("avg_pool3d", "out", (_with_nans(volume), [2]), note=" NaN")


def _refused_pools() -> Iterator[Case]:
    volume = values((1, 2, 4, 5, 6))
    for operator in ["avg_pool3d", "max_pool3d_with_indices"]:
        yield Case(operator, "out", (volume, [2, 2]), note=" two extents")
        yield Case(operator, "out", (volume, [9]), note=" too large")
        yield Case(operator, "out", (volume, [2], [2], [2]), note=" too much padding")
        yield Case(operator, "out", (volume, [0]), note=" empty window")
        yield Case(operator, "out", (volume, [2], [0]), note=" no step")
        yield Case(operator, "out", (values((1, 0, 4, 5, 6)), [2]), note=" no channels")
        yield Case(operator, "out", (values((4, 5, 6)), [2]), note=" an image")
    yield Case("avg_pool3d", "out", (volume, [2], [], [0], False, True, 0), note=" no divisor")
    for operator, x in [("adaptive_max_pool2d", (2, 7, 6)), ("adaptive_max_pool3d", (2, 4, 5, 6))]:
        yield Case(operator, "out", (values(x), [-1]), note=" negative")
        yield Case(operator, "out", (values((1, *x, 1)), [2]), note=" rank")
        yield Case(operator, "out", (values((0, *x[1:])), [2]), note=" empty")
    yield Case("avg_pool1d", "out", (values((7,)), [2]), note=" rank")


# Operators by number of spatial dimensions.
_NEAREST = [(1, "upsample_nearest1d"), (2, "upsample_nearest2d"), (3, "upsample_nearest3d")]
_EXACT = [(n, name.replace("upsample_nearest", "_upsample_nearest_exact")) for n, name in _NEAREST]
_WEIGHTED = [
    (1, "upsample_linear1d"),
    (2, "upsample_bilinear2d"),
    (3, "upsample_trilinear3d"),
    (2, "upsample_bicubic2d"),
    (2, "_upsample_bilinear2d_aa"),
    (2, "_upsample_bicubic2d_aa"),
]


def resampled() -> Iterator[Case]:
    """Larger, smaller and equal outputs of every resampling operator."""
    extents, sizes = (5, 7, 6), [(9, 14, 18), (2, 3, 4), (5, 7, 6), (1, 1, 1), (7, 3, 11)]
    for n, operator in [*_NEAREST, *_EXACT, *_WEIGHTED]:
        is_weighted = (n, operator) in _WEIGHTED
        x = values((2, 3, *extents[3 - n :]))
        aligns: list[tuple[Any, ...]] = [(False,), (True,)] if is_weighted else [()]
        for align in aligns:
            for size in sizes:
                yield Case(operator, "out", (x, list(size[3 - n :]), *align))
            # A factor decides the places even where it does not divide the extents.
            yield Case(operator, "out", (x, [12 * e // 5 for e in extents[3 - n :]], *align, *[2.4] * n))
        more = aligns[0]
        # Eager has no antialiasing of halves.
        for dtype in FLOATS[:2] if operator.endswith("_aa") else FLOATS:
            yield Case(operator, "out", (values(tuple(x.shape), dtype), [4] * n, *more))
        if not is_weighted:
            yield Case(operator, "out", (values(tuple(x.shape), torch.uint8), [4] * n))
        if n > 1:
            order = torch.channels_last if n == 2 else torch.channels_last_3d
            yield Case(operator, "out", (x.contiguous(memory_format=order), list(sizes[0][3 - n :]), *more))
        yield Case(operator, "out", (x[:0], [4] * n, *more), note=" no batch")
        yield Case(operator, "out", (x[:, :0], [4] * n, *more), note=" no channels")
        yield Case(operator, "out", (x, [0] * n, *more), note=" empty output")
        yield Case(operator, "out", (x, [4] * (n + 1), *more), note=" sizes")
        yield Case(operator, "out", (x[0], [4] * n, *more), note=" rank")
