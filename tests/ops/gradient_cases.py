"""Operator calls that carry gradients back, and the patches that convolutions can be made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from tests.ops.operator_case import OperatorCase as Case
from tests.ops.sample_tensors import FLOATS, channels_last, distinct, values

aten = torch.ops.aten


def pooling_gradients() -> Iterator[Case]:
    """Of averages, adaptive averages and maxima."""
    for dtype in FLOATS:
        yield from _average_gradients(values((2, 3, 7, 6), dtype))
        yield from _max_gradients(distinct((2, 3, 5, 4), dtype))
        for size in [[1, 1], [3, 4], [9, 2]]:
            x = values((2, 3, 7, 6), dtype)
            grad = values((2, 3, *size), dtype, 5)
            yield Case("_adaptive_avg_pool2d_backward", "out", (grad, x))
        yield Case(
            "_adaptive_avg_pool3d_backward", "out", (values((2, 2, 1, 2), dtype), values((2, 4, 3, 5), dtype))
        )
    yield from _average_gradients(values((2, 3, 7, 6), torch.int64))
    yield from _average_gradients(channels_last((2, 3, 7, 6)))
    yield from _average_gradients(values((3, 7, 6)))
    yield from _max_gradients(channels_last((2, 3, 5, 4)))
    yield from _max_gradients(distinct((3, 5, 4)))
    yield Case(
        "avg_pool3d_backward",
        "grad_input",
        (values((2, 2, 2, 3)), values((2, 4, 4, 6)), [2, 2, 2], [], [0], False, True, None),
    )
    x = distinct((2, 4, 4, 6))
    pooled, indices = aten.max_pool3d_with_indices(x, [2, 2, 2])
    yield Case(
        "max_pool3d_with_indices_backward",
        "grad_input",
        (values(tuple(pooled.shape)), x, [2, 2, 2], [], [0], [1], False, indices),
    )
    wrong = values((2, 3, 3, 3))
    yield Case(
        "avg_pool2d_backward",
        "grad_input",
        (wrong, values((2, 3, 7, 6)), [2, 2], [], [0], False, True, None),
        note=" misfit",
    )
    yield Case(
        "_adaptive_avg_pool2d_backward", "out", (values((2, 3, 0, 3)), values((2, 3, 7, 6))), note=" empty"
    )
    yield Case(
        "_adaptive_avg_pool2d_backward", "out", (values((0, 3, 2, 3)), values((0, 3, 7, 6))), note=" no batch"
    )


def _average_gradients(x: torch.Tensor) -> Iterator[Case]:
    for options in [
        ([2, 2], [], [0], False, True, None),
        ([3, 2], [1, 2], [1, 1], False, False, None),
        ([3, 3], [2, 2], [1, 1], True, True, None),
        ([3, 3], [2, 2], [1, 1], True, False, 5),
    ]:
        grad = values(tuple(aten.avg_pool2d(x, *options).shape), x.dtype, 4)
        yield Case("avg_pool2d_backward", "grad_input", (grad, x, *options))


def _max_gradients(x: torch.Tensor) -> Iterator[Case]:
    for options in [
        ([2, 2], [], [0], [1], False),
        ([3, 2], [1, 1], [1, 1], [1, 2], False),
        ([3, 3], [2, 2], [1, 1], [1, 1], True),
    ]:
        pooled, indices = aten.max_pool2d_with_indices(x, *options)
        grad = values(tuple(pooled.shape), x.dtype, 4)
        yield Case("max_pool2d_with_indices_backward", "grad_input", (grad, x, *options, indices))


def convolution_gradients() -> Iterator[Case]:
    """Of input, weight and bias: plain, transposed, with groups, in one to three dimensions."""
    for dtype in [torch.float32, torch.float64]:
        yield _convolution((2, 4, 9), (6, 4, 3), dtype)
        yield _convolution((2, 4, 9), (6, 2, 3), dtype, stride=[2], padding=[2], dilation=[2], groups=2)
        yield _convolution((2, 3, 8, 7), (5, 3, 3, 2), dtype, stride=[2, 1], padding=[1, 0])
        yield _convolution((1, 6, 8, 7), (6, 1, 3, 3), dtype, padding=[1, 1], groups=6)
        yield _convolution((2, 3, 4, 5, 3), (2, 3, 2, 3, 1), dtype, stride=[1, 2, 1], padding=[1, 0, 0])
        yield _convolution((2, 4, 5, 4), (4, 3, 3, 2), dtype, transposed=True, stride=[2, 2], padding=[1, 0])
        yield _convolution(
            (2, 4, 5), (4, 2, 3), dtype, transposed=True, stride=[3], groups=2, output_padding=[1]
        )
    for dtype in [torch.float16, torch.bfloat16]:
        yield _convolution((1, 2, 5, 4), (2, 2, 3, 2), dtype)
    for mask in [[True, False, False], [False, True, False], [True, True, False]]:
        yield _convolution((2, 3, 8, 7), (5, 3, 3, 2), torch.float32, mask=mask)
    yield _convolution((2, 3, 8, 7), (5, 3, 3, 2), torch.float32, last=True)


def _convolution(
    x: tuple[int, ...],
    w: tuple[int, ...],
    dtype: torch.dtype,
    mask: list[bool] | None = None,
    last: bool = False,
    **options: Any,
) -> Case:
    n = len(x) - 2
    o: dict[str, Any] = {
        "stride": [1] * n,
        "padding": [0] * n,
        "dilation": [1] * n,
        "transposed": False,
        "output_padding": [0] * n,
        "groups": 1,
    }
    o |= options
    left, right = values(x, dtype), values(w, dtype, 1)
    if dtype.itemsize == 2:
        # Eager rounds partial sums to the dtype; with small integers there is nothing to round.
        left, right = (torch.remainder(t.float() * 16, 3).to(dtype) for t in (left, right))
    if last:
        left = left.contiguous(memory_format=torch.channels_last)
    forward = aten.convolution(left.double(), right.double(), None, *o.values())
    grad = values(tuple(forward.shape), dtype, 2)
    grad = grad.sign() if dtype.itemsize == 2 else grad
    mask = mask or [True, True, True]
    sizes = [forward.shape[1]] if mask[2] else None
    return Case("convolution_backward", "out", (grad, left, right, sizes, *o.values(), mask))


def norm_gradients() -> Iterator[Case]:
    """Of layer and group norms."""
    every, some = [True, True, True], [True, False, False]
    for dtype in [torch.float32, torch.float64]:
        for shape, normalized in [((4, 6), [6]), ((2, 3, 700), [700]), ((2, 3, 4), [3, 4]), ((0, 5), [5])]:
            x, w, b = (
                values(shape, dtype),
                values(tuple(normalized), dtype, 3),
                values(tuple(normalized), dtype, 4),
            )
            _, mean, rstd = aten.native_layer_norm(x, normalized, w, b, 1e-5)
            grad = values(shape, dtype, 7)
            yield Case("native_layer_norm_backward", "out", (grad, x, normalized, mean, rstd, w, b, every))
            yield Case(
                "native_layer_norm_backward",
                "out",
                (grad, x, normalized, mean, rstd, None, None, some),
                outputs=1,
            )
        for x in [
            values((2, 6, 5, 4), dtype),
            channels_last((2, 6, 5, 4), dtype),
            values((2, 6), dtype),
            values((0, 6, 5), dtype),
        ]:
            w, b = values((6,), dtype, 3), values((6,), dtype, 4)
            area = x[0, 0].numel() if x.numel() else 5
            sizes = (x.shape[0], 6, area, 2)
            _, mean, rstd = aten.native_group_norm(x.contiguous(), w, b, *sizes, 1e-5)
            grad = values(tuple(x.shape), dtype, 7)
            yield Case(
                "native_group_norm_backward", "out", (grad, x.contiguous(), mean, rstd, w, *sizes, every)
            )
            yield Case(
                "native_group_norm_backward",
                "out",
                (grad, x.contiguous(), mean, rstd, None, *sizes, some),
                outputs=1,
            )


def embedding_gradients() -> Iterator[Case]:
    """Of the table of an embedding."""
    indices = torch.tensor([[2, 0, 2], [4, 2, 1]])
    for dtype in FLOATS:
        grad = values((2, 3, 5), dtype)
        for padding in [-1, 2]:
            for scaled in [False, True]:
                yield Case("embedding_dense_backward", "out", (grad, indices, 6, padding, scaled))
    yield Case("embedding_dense_backward", "out", (values((2, 3, 5)), indices.int(), 6, -1, False))
    yield Case("embedding_dense_backward", "out", (values((0, 5)), indices[0, :0], 6, -1, False))


def patches() -> Iterator[Case]:
    """Columns of images and back."""
    for x in [
        *(values((2, 3, 6, 5), dtype) for dtype in [*FLOATS, torch.bool, torch.int32]),
        values((3, 6, 5)),
        channels_last((2, 3, 6, 5)),
        values((0, 3, 6, 5)),
    ]:
        for options in [
            ([2, 2], [1, 1], [0, 0], [1, 1]),
            ([3, 2], [1, 2], [1, 0], [2, 1]),
            ([1, 1], [1, 1], [0, 0], [1, 1]),
        ]:
            yield Case("im2col", "out", (x, *options))
            if x.dtype != torch.int32:
                columns = aten.im2col(x, *options)
                yield Case("col2im", "out", (columns, [6, 5], *options))
    for options in [
        ([9, 9], [1, 1], [0, 0], [1, 1]),
        ([0, 1], [1, 1], [0, 0], [1, 1]),
        ([2, 2], [1, 1], [-1, 0], [1, 1]),
    ]:
        yield Case("im2col", "out", (values((2, 3, 6, 5)), *options), note=" refused")
    yield Case("col2im", "out", (values((2, 12, 20)), [6, 6], [2, 2], [1, 1], [0, 0], [1, 1]), note=" misfit")
    yield Case("col2im", "out", (values((2, 11, 20)), [6, 5], [2, 2], [1, 1], [0, 0], [1, 1]), note=" misfit")


def every_gradient() -> Iterator[Case]:
    """The whole of this file."""
    yield from pooling_gradients()
    yield from convolution_gradients()
    yield from norm_gradients()
    yield from embedding_gradients()
    yield from patches()
