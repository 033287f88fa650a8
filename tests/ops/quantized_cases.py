"""Calls of the `quantized_decomposed` operators, against those that PyTorch writes in Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.ao.quantization.fx._decomposed  # defines the operators

from pteron.exir.edge.quantized_out_variants import LIBRARY_NAMESPACE, NAMESPACE
from tests.ops.operator_case import OperatorCase
from tests.ops.sample_tensors import INF, NAN, channels_last, special, values

RANGES = {
    torch.int8: (-128, 127),
    torch.uint8: (0, 255),
    torch.int16: (-32768, 32767),
    torch.uint16: (0, 65535),
    torch.int32: (-(2**31), 2**31 - 1),
}
HALVES = [torch.float32, torch.float16, torch.bfloat16]


def case(operator: str, overload: str, args: tuple[Any, ...], **options: Any) -> OperatorCase:
    """A call of an operator of the library."""
    return OperatorCase(operator, overload, args, library=LIBRARY_NAMESPACE, namespace=NAMESPACE, **options)


def parameters(
    count: tuple[int, ...], scale: torch.dtype, zero: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scales above zero, and zero points of few bits."""
    scales = values(count, torch.float64, 3).abs().add(0.07).to(scale)
    return scales, values(count, torch.int64, 4, low=0).to(zero)


def quantised(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Numbers over the whole range of a dtype."""
    low, high = RANGES[dtype]
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randint(low, high + 1, shape, generator=generator).to(dtype)


def whole_tensors() -> Iterator[OperatorCase]:
    """One scale and zero point."""
    for dtype, (low, high) in RANGES.items():
        for source in HALVES:
            yield case("quantize_per_tensor", "out", (values((3, 70), source), 0.037, 5, low, high, dtype))
        for target in [None, torch.float16, torch.bfloat16, torch.float64]:
            options = {} if target is None else {"out_dtype": target}
            args = (quantised((3, 70), dtype), 0.037, 5, low, high, dtype)
            yield case("dequantize_per_tensor", "out", args, kwargs=options)
        for shape in [(), (0, 3), (2, 3, 4, 5)]:
            yield case("quantize_per_tensor", "out", (values(shape), 0.5, 0, low, high, dtype))
            yield case("dequantize_per_tensor", "out", (quantised(shape, dtype), 0.5, 0, low, high, dtype))
    # What float32 does not hold of the ends of int32 is left to the processor in PyTorch.
    for dtype in [torch.int8, torch.uint8, torch.int16]:
        low, high = RANGES[dtype]
        yield case("quantize_per_tensor", "out", (special(), 0.25, 3, low, high, dtype), note=" special")
    ties = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49999997, 126.5, 1e9])
    yield case("quantize_per_tensor", "out", (ties, 1.0, 0, -128, 127, torch.int8), note=" ties")
    yield case("quantize_per_tensor", "out", (channels_last((2, 3, 4, 5)), 0.1, -7, -8, 7, torch.int8))
    x = quantised((2, 3, 4, 5), torch.int8).contiguous(memory_format=torch.channels_last)
    yield case("dequantize_per_tensor", "out", (x, 0.1, -7, -8, 7, torch.int8))
    for scale in [torch.tensor(0.1), torch.tensor([0.1], dtype=torch.float64), torch.tensor([[0.3]])]:
        for zero in [torch.tensor(3), torch.tensor([-3], dtype=torch.int32)]:
            given = (scale, zero, -128, 127, torch.int8)
            yield case("quantize_per_tensor", "Tensor_out", (values((4, 5)), *given))
            yield case("dequantize_per_tensor", "Tensor_out", (quantised((4, 5), torch.int8), *given))
    two = torch.tensor([0.1, 0.2])
    yield case(
        "quantize_per_tensor", "Tensor_out", (values((4,)), two, torch.tensor(0), -128, 127, torch.int8)
    )
    yield case("quantize_per_tensor", "out", (values((4,)), 0.5, 0, -129, 127, torch.int8), note=" range")
    yield case("quantize_per_tensor", "out", (values((4,), torch.float64), 0.5, 0, -128, 127, torch.int8))
    yield case("quantize_per_tensor", "out", (values((4,), torch.int32), 0.5, 0, -128, 127, torch.int8))
    yield case("dequantize_per_tensor", "out", (quantised((4,), torch.int8), 0.5, 0, 0, 255, torch.uint8))


def channels() -> Iterator[OperatorCase]:
    """A scale and zero point per index of one dimension."""
    for dtype, (low, high) in RANGES.items():
        for scale in [torch.float32, torch.float64]:
            for axis, shape in [(0, (3, 4, 5)), (1, (3, 4, 5)), (-1, (3, 4, 300))]:
                given = (*parameters((shape[axis],), scale, torch.int64), axis, low, high, dtype)
                yield case("quantize_per_channel", "out", (values(shape), *given))
                if dtype != torch.uint16:  # PyTorch does not promote uint16 with int64.
                    yield case("dequantize_per_channel", "out", (quantised(shape, dtype), *given))
    for zero in [torch.int8, torch.int32, torch.float32, torch.uint8]:
        for dtype in [torch.int8, torch.uint8]:
            given = (*parameters((4,), torch.float32, zero), 1, *RANGES[dtype], dtype)
            yield case("quantize_per_channel", "out", (values((3, 4)), *given))
            yield case("dequantize_per_channel", "out", (quantised((3, 4), dtype), *given))
    scales, zeros = parameters((3,), torch.float32, torch.int64)
    for source in HALVES:
        x = values((2, 3, 4, 4), source).contiguous(memory_format=torch.channels_last)
        yield case("quantize_per_channel", "out", (x, scales, zeros, 1, -127, 127, torch.int8))
    x = quantised((2, 3, 4, 4), torch.int8).contiguous(memory_format=torch.channels_last)
    for options in [{}, {"out_dtype": torch.float16}, {"out_dtype": torch.float64}]:
        yield case(
            "dequantize_per_channel", "out", (x, scales, zeros, 1, -127, 127, torch.int8), kwargs=options
        )
        yield case(
            "dequantize_per_channel", "out", (x, scales, None, 1, -127, 127, torch.int8), kwargs=options
        )
    yield case("quantize_per_channel", "out", (values((0, 3)), scales, zeros, 1, -127, 127, torch.int8))
    yield case("quantize_per_channel", "out", (values((2, 4)), scales, zeros, 1, -127, 127, torch.int8))
    yield case("quantize_per_channel", "out", (values((2, 3)), scales, zeros, 2, -127, 127, torch.int8))
    yield case("quantize_per_channel", "out", (values((2, 3)), scales, zeros, 1, -127, 300, torch.int8))
    yield case(
        "quantize_per_channel", "out", (special()[:9].reshape(3, 3), scales, zeros, 1, -8, 7, torch.int8)
    )


def tokens() -> Iterator[OperatorCase]:
    """A scale and zero point per row, and how they are chosen."""
    for scale in [torch.float64, torch.float32]:
        for shape in [(3, 300), (2, 3, 7), (5,), (0, 4)]:
            count = (*shape[:-1], 1)
            scales, zeros = parameters(count, scale, torch.int64)
            for source in [*HALVES, torch.float64]:
                given = (values(shape, source), scales, zeros, -128, 127, torch.int8)
                yield case("quantize_per_token", "out", given)
            for target in [torch.float32, torch.float16, torch.float64]:
                given = (quantised(shape, torch.int8), scales, zeros, -128, 127, torch.int8, target)
                yield case("dequantize_per_token", "out", given)
    scales, zeros = parameters((2, 1), torch.float64, torch.int64)
    yield case("quantize_per_token", "out", (values((3, 4)), scales, zeros, -128, 127, torch.int8))
    for source in HALVES:
        for x in [
            values((3, 300), source),
            values((2, 3, 7), source) / 3,
            values((4,), source),
            values((3, 1), source),
        ]:
            yield case("choose_qparams_per_token_asymmetric", "out", (x, torch.int8))
            for low, high, dtype in [(-128, 127, torch.int8), (0, 255, torch.uint8), (-8, 7, torch.int8)]:
                yield case("choose_qparams", "Tensor_out", (x, low, high, 1e-6, dtype))
    for x in [
        values((4,)).abs() + 1,
        -values((4,)).abs() - 1,
        torch.zeros(3),
        torch.tensor(2.0),
        values((0,)),
        torch.tensor([1.0, INF]),
        torch.tensor([1.0, NAN]),
        channels_last((2, 3, 4, 5)),
    ]:
        yield case("choose_qparams", "Tensor_out", (x, -128, 127, 1e-6, torch.int8))
        if x.isfinite().all():
            yield case("choose_qparams_per_token_asymmetric", "out", (x, torch.int8))
    yield case("choose_qparams", "Tensor_out", (values((4,)), 1, 127, 1e-6, torch.int8))
    yield case("choose_qparams", "Tensor_out", (values((4,)), 5, -5, 1e-6, torch.int8))
    yield case("choose_qparams", "Tensor_out", (values((4,), torch.float64), 0, 127, 1e-6, torch.int8))


def _unpacked(weight: torch.Tensor, per_byte: int) -> torch.Tensor:
    if per_byte == 1:
        return weight
    shifts = [4, 0] if per_byte == 2 else [0, 2, 4, 6]
    mask, middle = (15, 8) if per_byte == 2 else (3, 2)
    columns = torch.stack([((weight >> s) & mask).to(torch.int8) - middle for s in shifts], dim=-1)
    return columns.reshape(weight.shape[0], -1)


def _table(per_byte: int) -> Any:
    def look(
        weight: torch.Tensor,
        scales: torch.Tensor,
        zeros: torch.Tensor | None,
        low: int,
        high: int,
        indices: torch.Tensor,
        dtype: torch.dtype | None = None,
    ) -> torch.Tensor:
        rows = _unpacked(weight, per_byte)
        group = rows.shape[1] // (scales.shape[1] if scales.dim() == 2 else 1)
        dequantize = torch.ops.quantized_decomposed.dequantize_per_channel_group
        table = dequantize(rows, scales, zeros, low, high, rows.dtype, group, dtype or scales.dtype)
        return torch.ops.aten.embedding(table, indices)

    return look


def embeddings() -> Iterator[OperatorCase]:
    """Rows of quantised tables."""
    for width, per_byte, (low, high) in [
        ("byte", 1, (-128, 127)),
        ("4bit", 2, (-8, 7)),
        ("2bit", 4, (-2, 1)),
    ]:
        operator, look = f"embedding_{width}", _table(per_byte)
        for dtype in [torch.uint8, torch.int8][: 3 - per_byte if per_byte < 3 else 1]:
            weight = quantised((7, 8), dtype)
            for scale in HALVES:
                for count in [(7,), (7, 1), (7, 4)]:
                    if width == "4bit" and dtype == torch.int8:
                        continue
                    scales, zeros = parameters(count, scale, scale)
                    for index in [torch.tensor([[0, 6, 3], [1, 1, 2]]), torch.tensor(4, dtype=torch.int32)]:
                        for given in [(scales, None), (scales, zeros)]:
                            args = (weight, *given, low, high, index)
                            yield case(operator, "out", args, function=look)
                            for target in [torch.float32, torch.float16]:
                                yield case(
                                    operator, "dtype_out", args, kwargs={"dtype": target}, function=look
                                )
        weight, scales = quantised((7, 8), torch.uint8), torch.ones(7)
        for index in [torch.tensor([7]), torch.tensor([-1]), torch.tensor([1.0])]:
            yield case(operator, "out", (weight, scales, None, low, high, index), function=look)
        yield case(
            operator, "out", (weight, torch.ones(6), None, low, high, torch.tensor([0])), function=look
        )
        yield case(
            operator,
            "out",
            (weight, scales, None, low, high, torch.tensor([], dtype=torch.int64)),
            function=look,
        )


def _sum(*args: Any) -> torch.Tensor:
    a, b, out = args[:5], args[5:10], args[10:]
    library, dtype = torch.ops.quantized_decomposed, a[0].dtype
    return library.quantize_per_tensor(
        library.dequantize_per_tensor(*a, dtype) + library.dequantize_per_tensor(*b, dtype), *out, dtype
    )


def _product(transposed: bool) -> Any:
    def multiply(
        x: torch.Tensor,
        weight: torch.Tensor,
        scales: torch.Tensor,
        zeros: None,
        dtype: torch.dtype | None = None,
    ) -> torch.Tensor:
        if zeros is not None or x.dtype != scales.dtype:
            raise ValueError("not supported by ExecuTorch")
        scales = scales if scales.dim() == 2 else scales[:, None]
        full = weight.float() * scales.float().repeat_interleave(weight.shape[1] // scales.shape[1], 1)
        return (x.float() @ (full.T if transposed else full)).to(dtype or x.dtype)

    return multiply


def arithmetic() -> Iterator[OperatorCase]:
    """Sums and products."""
    for dtype in [torch.uint8, torch.int8, torch.int16]:
        low, high = RANGES[dtype]
        for a, b in [((3, 70), (3, 70)), ((3, 1, 4), (2, 4)), ((0,), (1,)), ((), ())]:
            given = (quantised(a, dtype), 0.11, 3, low, high, quantised(b, dtype, 1), 0.23, 5, low, high)
            yield case("add", "out", (*given, 0.3, 7, low, high), function=_sum)
    given = (quantised((3,), torch.int8), 0.1, 3, -128, 127, quantised((4,), torch.int8), 0.2, 5, -128, 127)
    yield case("add", "out", (*given, 0.3, 7, -128, 127), function=_sum, note=" misfit")
    for source in HALVES:
        x = values((5, 8), source)
        w, scales = quantised((8, 3), torch.int8), parameters((8,), source, source)[0] / 50
        yield case("mixed_mm", "out", (x, w, scales, None), function=_product(False))
        for count in [(3,), (3, 1), (3, 4)]:
            w, scales = quantised((3, 8), torch.int8), parameters(count, source, source)[0] / 50
            yield case("mixed_linear", "out", (x, w, scales, None), function=_product(True))
            args = (x, w, scales, None, torch.float32)
            yield case("mixed_linear", "out", args, function=_product(True))
    # Small enough for results below one: errors of a sum are relative to its terms.
    w, scales = quantised((3, 300), torch.int8), parameters((3, 4), torch.float32, torch.float32)[0] / 50_000
    yield case("mixed_linear", "out", (values((2, 300)), w, scales, None), function=_product(True))
    yield case("mixed_linear", "out", (values((2, 300)), w, scales, scales), function=_product(True))
    yield case("mixed_linear", "out", (values((2, 299)), w, scales, None), function=_product(True))
    yield case("mixed_linear", "out", (values((2, 300)), w, scales.half(), None), function=_product(True))


def every_quantised() -> Iterator[OperatorCase]:
    """All of these."""
    for table in [whole_tensors, channels, tokens, embeddings, arithmetic]:
        yield from table()
