"""Calls of torchvision's operators, and of products of groups, which mixtures of experts are made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torchvision  # registers its operators

from pteron.exir.edge.known_out_variants import LIBRARIES
from tests.ops.operator_case import OperatorCase as Case
from tests.ops.sample_tensors import ALL, INF, NAN, channels_last, values

assert torchvision.extension._has_ops()

_FLOATS = [torch.float32, torch.float64, torch.float16]


def _case(namespace: str, operator: str, args: tuple[Any, ...], note: str = "", **options: Any) -> Case:
    library = LIBRARIES[namespace]
    return Case(operator, "out", args, note=note, library=library, namespace=namespace, **options)


def _boxes(
    count: int, dtype: torch.dtype = torch.float32, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Boxes that overlap, with scores of which some are equal."""
    generator = torch.Generator().manual_seed(seed)
    corners = torch.randint(0, 40, (count, 2), generator=generator) / 4
    sizes = torch.randint(1, 24, (count, 2), generator=generator) / 4
    scores = torch.randint(0, 1 + count // 2, (count,), generator=generator) / 8
    return torch.cat([corners, corners + sizes], 1).to(dtype), scores.to(dtype)


def suppressions() -> Iterator[Case]:
    """Boxes of every kind; a result has room for all of them."""

    def nms(boxes: torch.Tensor, scores: torch.Tensor, limit: float, note: str = "") -> Case:
        return _case("torchvision", "nms", (boxes, scores, limit), note, largest=(max(len(boxes), 1),))

    for dtype in [torch.float32, torch.float64]:
        for count in [1, 2, 17, 300]:
            for limit in [0.0, 0.3, 0.7, 1.0]:
                yield nms(*_boxes(count, dtype), limit)
    boxes, scores = _boxes(60)
    yield nms(boxes, scores, -1.0)
    yield nms(boxes, scores, NAN)
    yield nms(boxes[:0], scores[:0], 0.5)
    yield nms(boxes.t().contiguous().t(), scores, 0.5)
    yield nms(boxes[:1].repeat(40, 1), torch.ones(40), 0.5, note=" ties")
    turned = boxes[:, [2, 3, 0, 1]]
    yield nms(turned, scores, 0.5, note=" turned round")
    for column in range(4):
        holed = boxes.clone()
        holed[::5, column] = NAN
        yield nms(holed, scores, 0.3, note=" NaN")
        holed[1::5, column] = INF
        holed[2::5, column] = -INF
        yield nms(holed, scores, 0.3, note=" NaN and infinity")
    holed = scores.clone()
    holed[::7] = NAN
    holed[1::7] = INF
    yield nms(boxes, holed, 0.3, note=" NaN scores")
    yield nms(boxes[:, :3], scores, 0.5)
    yield nms(boxes, scores[:-1], 0.5)
    yield nms(boxes, scores[None], 0.5)
    yield nms(boxes.half(), scores.half(), 0.5)
    yield nms(boxes, scores.double(), 0.5)


def _regions(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Inside, across the border, outside, without area, turned round."""
    return torch.tensor(
        [
            [0.0, 2.0, 3.0, 9.5, 12.0],
            [1.0, -6.0, -4.0, 30.0, 40.0],
            [1.0, 0.25, 0.75, 3.0, 2.0],
            [0.0, 100.0, 100.0, 140.0, 120.0],
            [1.0, 5.0, 5.0, 5.0, 5.0],
            [0.0, 12.0, 9.0, 3.0, 2.0],
            [1.0, 0.0, 0.0, 21.0, 17.0],
        ]
    ).to(dtype)


def regions() -> Iterator[Case]:
    """Regions of feature maps."""

    def align(*args: Any, **options: Any) -> Case:
        return _case("torchvision", "roi_align", args, **options)

    for dtype in _FLOATS:
        x = values((2, 3, 9, 11), dtype)
        for aligned in [True, False]:
            for scale, size, ratio in [
                (0.5, (2, 3), 2),
                (0.5, (7, 7), -1),
                (1.0, (1, 1), 3),
                (0.25, (3, 2), 0),
            ]:
                yield align(x, _regions(dtype), scale, *size, ratio, aligned)
    yield align(channels_last((2, 3, 9, 11)), _regions(), 0.5, 3, 4, 2, True)
    yield align(values((2, 70, 5, 6)), _regions(), 0.5, 2, 2, -1, True)
    yield align(values((2, 3, 1, 1)), _regions(), 0.5, 2, 2, 2, True)
    yield align(values((2, 3, 9, 11)), _regions()[:0], 0.5, 2, 2, -1, True)
    holed = values((2, 3, 9, 11))
    holed[0, 1, 3, 4], holed[1, 0, 2, 2] = NAN, INF
    yield align(holed, _regions(), 0.5, 4, 4, 2, True, note=" NaN")
    yield align(values((2, 3, 9, 11)), _regions()[:, :4], 0.5, 2, 2, 2, True, largest=(7, 3, 2, 2))
    yield align(values((2, 3, 9, 11)), _regions().double(), 0.5, 2, 2, 2, True, largest=(7, 3, 2, 2))
    yield align(values((2, 3, 9, 11), torch.bfloat16), _regions(torch.bfloat16), 0.5, 2, 2, 2, True)


def _deformed(
    shape: tuple[int, int, int, int] = (2, 4, 7, 6),
    outputs: int = 6,
    window: tuple[int, int] = (3, 3),
    groups: tuple[int, int] = (1, 1),
    settings: tuple[int, int, int] = (1, 1, 1),
    dtype: torch.dtype = torch.float32,
    has_mask: bool = True,
    far: float = 0.5,
) -> tuple[Any, ...]:
    """Arguments of a call; `settings`: stride, padding, dilation."""
    stride, pad, dilation = settings
    out = [
        (e + 2 * pad - dilation * (w - 1) - 1) // stride + 1 for e, w in zip(shape[2:], window, strict=True)
    ]
    places = groups[1] * window[0] * window[1]
    mask = values((shape[0], places, *out), dtype, seed=3) if has_mask else torch.zeros(shape[0], 1).to(dtype)
    return (
        values(shape, dtype),
        values((outputs, shape[1] // groups[0], *window), dtype, seed=1),
        values((shape[0], 2 * places, *out), dtype, seed=2) * far,
        mask,
        values((outputs,), dtype, seed=4),
        *[stride] * 2,
        *[pad] * 2,
        *[dilation] * 2,
        *groups,
        has_mask,
    )


def deformed_convolutions() -> Iterator[Case]:
    """Convolutions at places that are data."""

    def convolve(args: tuple[Any, ...], note: str = "", **options: Any) -> Case:
        return _case("torchvision", "deform_conv2d", args, note, **options)

    for dtype in _FLOATS:
        for has_mask in [True, False]:
            yield convolve(_deformed(dtype=dtype, has_mask=has_mask))
            yield convolve(_deformed(groups=(2, 2), settings=(2, 1, 1), dtype=dtype, has_mask=has_mask))
    yield convolve(_deformed(groups=(2, 1)))
    yield convolve(_deformed(groups=(1, 4), settings=(1, 2, 2)))
    yield convolve(_deformed((1, 3, 20, 23), 5, (2, 1), settings=(1, 0, 1)))
    yield convolve(_deformed((1, 130, 9, 9), 33, far=2.0), note=" many channels")
    yield convolve(_deformed((0, 4, 7, 6)))
    args = _deformed()
    yield convolve((args[0].contiguous(memory_format=torch.channels_last), *args[1:]), note=" channels last")
    infinite = args[2].clone()
    infinite[0, 0], infinite[1, 5] = INF, -INF
    yield convolve((*args[:2], infinite, *args[3:]), note=" infinite offsets")
    yield convolve(_deformed(groups=(1, 3)), largest=(2, 6, 7, 6))
    yield convolve((*args[:2], args[2][:, :4], *args[3:]), largest=(2, 6, 7, 6))


_LAYOUTS: list[tuple[tuple[int, ...], tuple[int, ...], list[int] | None]] = [
    ((8, 16), (3, 16, 32), [2, 5, 8]),
    ((8, 16), (3, 16, 32), [0, 8, 8]),
    ((3, 8, 16), (16, 24), [8, 8, 24]),
    ((8, 24), (24, 16), [8, 16, 24]),
    ((3, 8, 16), (3, 16, 8), None),
]


def groups() -> Iterator[Case]:
    """Products of groups that begin and end where eager PyTorch's kernels can take them."""
    for dtype in [torch.float32, torch.bfloat16, torch.float16]:
        for a, b, ends in _LAYOUTS:
            offsets = None if ends is None else torch.tensor(ends, dtype=torch.int32)
            args = (values(a, dtype), values(b, dtype, seed=1), offsets)
            yield _case("aten", "_grouped_mm", args, " by products", function=_by_products)
        offsets = torch.tensor([200, 200, 421], dtype=torch.int32)
        args = (values((421, 48), dtype), values((3, 48, 72), dtype), offsets)
        yield _case("aten", "_grouped_mm", args, " by products", function=_by_products)
    a, b = values((8, 16)), values((3, 16, 32))
    offsets = torch.tensor([2, 5, 8], dtype=torch.int32)
    columns = values((3, 32, 16)).transpose(1, 2)
    yield _case("aten", "_grouped_mm", (a, columns, offsets), " by products", function=_by_products)
    yield _case("aten", "_grouped_mm", (a, b, offsets))
    yield _case("aten", "_grouped_mm", (a, b, offsets, None, torch.float32))
    yield _case("aten", "_grouped_mm", (a, b, offsets, values((32,))), largest=(8, 32))
    yield _case("aten", "_grouped_mm", (a, b), largest=(8, 32))
    yield _case("aten", "_grouped_mm", (a, b, offsets[:2]), largest=(8, 32))
    yield _case("aten", "_grouped_mm", (a.double(), b.double(), offsets), largest=(8, 32))
    for dtype in ALL:
        if dtype == torch.bool:
            continue
        for kind in [torch.int32, torch.int64]:
            args = (values((9, 5), dtype), values((4, 5, 7), dtype), torch.tensor([0, 4, 4, 7], dtype=kind))
            yield _case("transformers", "grouped_mm_fallback", args, function=_by_products)
    rest = torch.tensor([9, 2, 0, 0])
    args = (values((9, 5)), values((4, 5, 7)), rest)
    yield _case(
        "transformers", "grouped_mm_fallback", args, " falling", function=_by_products, largest=(9, 7)
    )
    for end in [10, -1]:
        args = (values((9, 5)), values((4, 5, 7)), torch.tensor([0, 2, 5, end]))
        yield _case(
            "transformers", "grouped_mm_fallback", args, " outside", function=_by_products, largest=(9, 7)
        )


def _by_products(
    a: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor | None = None, *_: Any
) -> torch.Tensor:
    """The definition of both operators, with zeros behind the last group; eager PyTorch's kernel wants
    strides of 16 bytes, leaves the rest undefined and does not look at the offsets.
    """
    if offsets is None:
        return torch.bmm(a, b)
    ends = offsets.tolist()
    extent = b.shape[1] if b.dim() == 2 and a.dim() == 3 else a.shape[-1] if b.dim() == 2 else a.shape[0]
    if any(end < start for start, end in zip([0, *ends], [*ends, extent], strict=False)):
        raise ValueError("the offsets cut nothing")
    parts = list(zip([0, *ends[:-1]], ends, strict=True))
    if a.dim() == 2 and b.dim() == 2:
        return torch.stack([a[:, start:end] @ b[start:end] for start, end in parts])
    if a.dim() == 2:
        made = [a[start:end] @ b[g] for g, (start, end) in enumerate(parts)]
        return torch.cat([*made, a.new_zeros(extent - ends[-1], b.shape[2])])
    made = [a[g] @ b[:, start:end] for g, (start, end) in enumerate(parts)]
    return torch.cat([*made, a.new_zeros(a.shape[1], extent - ends[-1])], 1)


def truths_and_bytes() -> Iterator[Case]:
    """_is_all_true, _is_any_true, and products of int8 in int32."""
    for operator in ["_is_all_true", "_is_any_true"]:
        for x in [torch.ones(300), torch.zeros(300), values((3, 4)), torch.ones(0), torch.tensor(1.0)]:
            yield _case("aten", operator, (x.bool(),))
        yield _case("aten", operator, (channels_last((2, 3, 4, 5)).bool(),))
        yield _case("aten", operator, (torch.ones(3),), largest=())
    for m, k, n in [(1, 1, 1), (3, 5, 7), (40, 700, 65), (0, 3, 2), (3, 0, 2)]:
        a, b = values((m, k), torch.int8), values((k, n), torch.int8, seed=1)
        yield Case("_int_mm", "out", (a, b))
        yield Case("_int_mm", "out", (a, b.t().contiguous().t()))
        yield Case("_int_mm", "out", (a.abs().byte() + 150, b))
    low = torch.full((2, 200000), -128, dtype=torch.int8)
    yield Case("_int_mm", "out", (low, low.t().contiguous()), note=" wraps")
    a, b = values((3, 5), torch.int8), values((5, 7), torch.int8)
    yield Case("_int_mm", "out", (a.int(), b.int()), largest=(3, 7))
    yield Case("_int_mm", "out", (a, b.byte()), largest=(3, 7))
    yield Case("_int_mm", "out", (a, b[:4]), largest=(3, 7))


def every_vision() -> Iterator[Case]:
    """All of this file."""
    yield from suppressions()
    yield from regions()
    yield from deformed_convolutions()
    yield from groups()
    yield from truths_and_bytes()
