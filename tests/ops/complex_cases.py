"""Calls on complex64 tensors, Fourier transforms among them."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tests.ops.operator_case import OperatorCase as Case
from tests.ops.sample_tensors import INF, NAN, values


def numbers(shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    """Complex numbers with signs and zeros."""
    return torch.complex(values(shape, seed=seed), values(shape, seed=seed + 1))


def transposed(shape: tuple[int, int]) -> torch.Tensor:
    """The same in another order of memory."""
    return numbers((shape[1], shape[0]), 5).t()


def pairs() -> Iterator[Case]:
    """Arithmetic and comparisons."""
    x, y = numbers((3, 4)), numbers((3, 4), 7)
    for op in ["mul", "div", "add", "sub"]:
        for a, b in [
            (x, y),
            (numbers((2, 1, 3)), numbers((4, 1), 3)),
            (transposed((3, 4)), y),
            (x, values((4,))),
            (values((3, 4), torch.int32), y),
            (x, torch.tensor(2.5)),
            (numbers((0, 3)), numbers((1, 3))),
            (numbers(()), numbers((), 2)),
        ]:
            yield Case(op, "out", (a, b))
        yield Case(op, "out", (x, numbers((5,))), note=" misfit")
        yield Case(op, "Scalar_out", (x, 2))
        yield Case(op, "Scalar_out", (x, -0.3))
    yield Case("add", "out", (x, y), {"alpha": 3})
    yield Case("sub", "out", (x, y), {"alpha": 0.5})
    same = x.clone()
    same[1, 2] = 9
    for op in ["eq", "ne"]:
        yield Case(op, "Tensor_out", (x, same))
        yield Case(op, "Tensor_out", (x, values((3, 4))))
    mask = values((3, 4), torch.bool)
    yield Case("where", "self_out", (mask, x, y))
    yield Case("where", "self_out", (mask[:1], x, numbers((), 3)))
    for op in [
        "neg",
        "square",
        "_conj_physical",
        "conj_physical",
        "_conj_copy",
        "reciprocal",
        "abs",
        "angle",
        "exp",
        "log",
    ]:
        for z in [x / 4 + 0.01, transposed((3, 4)) / 8 + 0.01j, numbers((0, 2)), numbers(()) + 1]:
            yield Case(op, "out", (z,))
    corners = torch.tensor([complex(a, b) for a in [0.0, -0.0, 1.0, INF, -INF] for b in [0.0, -0.0, INF]])
    yield Case("abs", "out", (corners,), note=" corners")
    yield Case("angle", "out", (corners,), note=" corners")


def copies() -> Iterator[Case]:
    """What moves numbers."""
    x = numbers((3, 4))
    yield Case("permute_copy", "out", (numbers((2, 3, 4)), [2, 0, 1]))
    yield Case("cat", "out", ([x, numbers((2, 4), 3)], 0))
    yield Case("slice_copy", "Tensor_out", (x, 1, 1, 4, 2))
    yield Case("select_copy", "int_out", (x, 1, -1))
    yield Case("expand_copy", "out", (x[:1], [3, 4]))
    yield Case("view_copy", "out", (x, [2, 6]))
    yield Case("unsqueeze_copy", "out", (x, 1))
    yield Case("clone", "out", (transposed((3, 4)),))
    yield Case("flip", "out", (x, [0]))
    yield Case("stack", "out", ([x, x], 1))
    yield Case("view_as_complex_copy", "out", (values((3, 4, 2)),))
    yield Case("view_as_complex_copy", "out", (values((0, 2)),))
    yield Case("view_as_complex_copy", "out", (values((3, 4, 3)),))
    yield Case("complex", "out", (values((3, 1)), values((4,), seed=2)))
    yield Case("polar", "out", (values((3, 1)), values((4,), seed=2)))
    for dtype in [torch.float32, torch.float64, torch.float16, torch.int32, torch.bool]:
        yield Case("angle", "out", (values((3, 4), dtype),))
    yield Case("angle", "out", (torch.tensor([0.0, -0.0, NAN, INF, -INF, -1.0]),), note=" special")


def sums() -> Iterator[Case]:
    """Sums and products."""
    for x in [numbers((3, 4, 5)), numbers((2, 3, 40)).transpose(1, 2), numbers((0, 3, 2))]:
        for dims in [[0], [1, 2], [-1], []]:
            for keepdim in [False, True]:
                yield Case("sum", "IntList_out", (x, dims, keepdim))
                if x.numel() or dims != [0]:
                    yield Case("mean", "out", (x, dims, keepdim))
    for a, b in [((3, 4), (4, 5)), ((1, 70), (70, 2)), ((2, 0), (0, 3)), ((0, 2), (2, 3)), ((2, 3), (4, 2))]:
        yield Case("mm", "out", (numbers(a), numbers(b, 3)))
    yield Case("mm", "out", (transposed((3, 4)), transposed((4, 2))))
    yield Case("bmm", "out", (numbers((2, 3, 4)), numbers((2, 4, 5), 3)))
    yield Case("mm", "out", (numbers((3, 4)), values((4, 2))), note=" real")


def transforms() -> Iterator[Case]:
    """Fourier transforms of many lengths, dimensions and normalisations."""
    for n in [1, 2, 3, 4, 5, 6, 7, 8, 12, 15, 16, 30, 37, 60, 64, 74, 100, 128, 241, 512]:
        # Results stay near one: an error of a transform is relative to its largest result.
        real, complex_ = values((2, n)) / (4 * n), numbers((2, n)) / (8 * n)
        for norm in [0, 1, 2]:
            yield Case("_fft_r2c", "out", (real, [1], norm, True))
            yield Case("_fft_c2c", "out", (complex_, [1], norm, norm != 1))
            yield Case("_fft_c2r", "out", (_spectrum((2, n // 2 + 1), n), [1], norm, n))
        yield Case("_fft_r2c", "out", (real, [1], 0, False))
    for dims in [[0], [1], [0, 2], [2, 0, 1]]:
        yield Case("_fft_c2c", "out", (numbers((4, 5, 6)), dims, 1, True))
        yield Case("_fft_c2c", "out", (numbers((6, 5, 4)).permute(2, 1, 0), dims, 2, False))
        yield Case("_fft_r2c", "out", (values((4, 5, 6)), dims, 1, True))
        yield Case("_fft_r2c", "out", (values((6, 5, 4)).permute(2, 1, 0), dims, 0, False))
    spectrum = torch.fft.rfftn(values((4, 5, 6)))
    yield Case("_fft_c2r", "out", (spectrum, [0, 1, 2], 2, 6))
    yield Case("_fft_c2r", "out", (spectrum, [1, 2], 1, 7), note=" odd")
    yield Case("_fft_c2c", "out", (numbers((3, 0)), [1], 0, True))
    yield Case("_fft_c2c", "out", (numbers((2, 3)), [2], 0, True))
    yield Case("_fft_r2c", "out", (numbers((2, 3)), [1], 0, True))


def _spectrum(shape: tuple[int, ...], n: int) -> torch.Tensor:
    """The spectrum of a real signal, so that every library reads the same of it."""
    return torch.fft.rfft(values((*shape[:-1], n), seed=3)) / (4 * n)


_FUNCTIONS = (
    "sqrt rsqrt exp2 expm1 log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
    "sigmoid silu sgn isinf logical_not"
)


def functions() -> Iterator[Case]:
    """Functions of complex numbers on both sides of their branch cuts, powers, tests and what fills."""
    x, y = numbers((3, 4)), numbers((3, 4), 7)
    cuts = torch.tensor(
        [complex(a, b) for a in [-2.5, -1.0, -0.5, 0.25, 1.0, 3.0] for b in [0.0, -0.0, 0.5, -2.0]]
    )
    for op in _FUNCTIONS.split():
        for z in [x / 4 + 0.01, cuts + 0.125, transposed((3, 4)) / 8, numbers((0, 2)), numbers(()) + 1]:
            yield Case(op, "out", (z,))
    mask = values((3, 4), torch.bool)
    for exponent in [0, 1, 2, 3, -1, -2, 0.5, 1.7]:
        yield Case("pow", "Tensor_Scalar_out", (x + 0.1, exponent))
    yield Case("pow", "Tensor_Tensor_out", (x / 8 + 0.1, y / 8))
    yield Case("pow", "Tensor_Tensor_out", (x / 8 + 0.1, values((4,))))
    yield Case("rsub", "Tensor_out", (x, y), {"alpha": 3})
    yield Case("rsub", "Scalar_out", (x, 2, 0.5))
    for op in ["addcmul", "addcdiv"]:
        yield Case(op, "out", (x, y + 0.1, numbers((1, 4), 3) + 0.1j), {"value": 0.5})
    yield Case("lerp", "Scalar_out", (x, y, 0.3))
    yield Case("masked_fill", "Scalar_out", (x, mask, 2.5))
    yield Case("masked_fill", "Tensor_out", (x, mask, numbers((), 3)))
    same = x.clone()
    same[0, 1] = 2
    for op in ["eq", "ne"]:
        yield Case(op, "Scalar_out", (same, 2))
    for op in ["logical_and", "logical_or", "logical_xor"]:
        yield Case(op, "out", (x, torch.zeros(4, dtype=torch.complex64)))


def moves() -> Iterator[Case]:
    """What moves, counts and accumulates complex numbers."""
    x = numbers((3, 4))
    at = torch.tensor([[0, 2, 1, 0], [2, 2, 0, 1]])
    yield Case("gather", "out", (x, 0, at))
    yield Case("scatter", "src_out", (x, 0, at, numbers((2, 4), 5)))
    yield Case("put", "out", (x, at[0], numbers((4,), 3), True))
    yield Case("index_put", "out", (x, [torch.tensor([2, 0])], numbers((2, 4), 2), False))
    yield Case("nonzero", "out", (torch.tensor([0, 1j, 2, 0]),), largest=(4, 1))
    yield Case("reflection_pad1d", "out", (x, [2, 1]))
    yield Case("replication_pad2d", "out", (numbers((1, 3, 4)), [2, 1, 0, 3]))
    yield Case("constant_pad_nd", "out", (x, [1, -1, 0, 2], 1.5))
    yield Case("scatter", "value_out", (x, 0, at, 1.5))
    yield Case("scatter_add", "out", (x, 0, at, numbers((2, 4), 5)))
    yield Case("index_put", "out", (x, [torch.tensor([2, 2])], numbers((2, 4), 2), True))
    mask = values((3, 4), torch.bool)
    yield Case("masked_select", "out", (x, mask))
    yield Case("masked_scatter", "out", (x, mask, numbers((12,), 6)))
    images = numbers((2, 3, 5, 4))
    window = ([2, 3], [1, 1], [1, 0], [2, 1])
    yield Case("im2col", "out", (images, *window))
    yield Case("im2col", "out", (images[0], *window))
    yield Case("col2im", "out", (torch.ops.aten.im2col(images, *window), [5, 4], *window))
    yield Case("fill", "Scalar_out", (x, 2))
    for op in ["zeros_like", "ones_like"]:
        yield Case(op, "out", (x,))
    for op in ["any", "all"]:
        yield Case(op, "out", (x, 1))
        yield Case(op, "all_out", (x,))
    yield Case("prod", "out", (x / 4,))
    yield Case("prod", "int_out", (x, 1, True))
    for op in ["cumsum", "cumprod"]:
        yield Case(op, "out", (x / 2, 1))
        yield Case(op, "out", (transposed((3, 4)) / 2, 0))
    for z in [x / 2, transposed((3, 4)), torch.tensor([1 + 1j, 1 - 1j, -INF, 2, 3j, 700, NAN, 1])]:
        yield Case("logcumsumexp", "out", (z, 0))
    yield Case("logcumsumexp", "out", (numbers(()), 0))
    for op in ["var", "std"]:
        yield Case(op, "correction_out", (x, [1]), {"correction": 1})
    yield Case("var_mean", "correction_out", (x, [0]), {"correction": 0, "keepdim": True})
    for order in [0, 1, 2, 3.5, INF, -INF]:
        yield Case("linalg_vector_norm", "out", (x, order, [1]))
    yield Case(
        "addmm", "out", (numbers((5,)), numbers((3, 4)), numbers((4, 5), 3)), {"beta": 2, "alpha": 0.5}
    )
    yield Case("baddbmm", "out", (numbers((2, 3, 5)), numbers((2, 3, 4)), numbers((2, 4, 5), 3)))
    yield Case("mv", "out", (x, numbers((4,), 3)))
    yield Case("dot", "out", (numbers((4,)), numbers((4,), 3)))


def every_complex() -> Iterator[Case]:
    """All of these."""
    for table in [pairs, copies, sums, transforms, functions, moves]:
        yield from table()
