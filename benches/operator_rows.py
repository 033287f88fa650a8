"""The operators of `operator_speed.py`: each with its arguments for a number of elements.

A row is a name (operator, dtype, what is special), an out-variant of ATen, and a function from a number
of elements to the arguments of the functional operator. Sizes are elements of about four bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

SIZES = {"small": 256, "medium": 64 << 10, "large": 4 << 20}
Arguments = Callable[[int], tuple[Any, ...]]


@dataclass(frozen=True)
class Row:
    """One operator with one kind of arguments; results that differ by chance are not compared."""

    name: str
    overload: str
    arguments: Arguments
    keywords: tuple[tuple[str, Any], ...] = ()
    is_compared: bool = True


def values(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
    """Values of mixed sign; integers from -100 to 100 (0 to 100 unsigned), never zero."""
    if dtype == torch.bool:
        return torch.rand(shape) > 0.5
    if dtype.is_floating_point:
        return torch.randn(shape).to(dtype)
    numbers = torch.randint(1, 100, shape)
    if dtype != torch.uint8:
        numbers = numbers * (torch.randint(0, 2, shape) * 2 - 1)
    return numbers.to(dtype)


def distinct(shape: tuple[int, int]) -> Tensor:
    """Whole numbers in no order, each once."""
    return torch.randperm(shape[0] * shape[1]).float().view(shape)


def square(n: int) -> tuple[int, int]:
    """A matrix of about n elements."""
    side = int(n**0.5)
    return side, side


def rows_of(n: int, length: int) -> tuple[int, int]:
    """Rows of a length."""
    return max(1, n // length), length


def image(n: int, channels: int) -> tuple[int, int, int, int]:
    """One image of about n elements."""
    side = max(4, int((n / channels) ** 0.5))
    return 1, channels, side, side


def last(x: Tensor) -> Tensor:
    """The same in channels-last memory order."""
    return x.contiguous(memory_format=torch.channels_last)


def one(dtype: torch.dtype = torch.float32) -> Arguments:
    return lambda n: (values((n,), dtype),)


def positive(dtype: torch.dtype = torch.float32) -> Arguments:
    return lambda n: (values((n,), dtype).abs() + 0.1,)


def two(dtype: torch.dtype = torch.float32, other: torch.dtype | None = None) -> Arguments:
    return lambda n: (values((n,), dtype), values((n,), other or dtype))


def with_scalar(scalar: Any, dtype: torch.dtype = torch.float32) -> Arguments:
    return lambda n: (values((n,), dtype), scalar)


def positions(count: int, below: int) -> Tensor:
    return torch.randint(0, below, (count,))


f16, bf16, f64 = torch.float16, torch.bfloat16, torch.float64
i8, i32, i64, u8, b8 = torch.int8, torch.int32, torch.int64, torch.uint8, torch.bool


def _unary() -> list[Row]:
    plain = [
        "relu",
        "sigmoid",
        "tanh",
        "exp",
        "neg",
        "abs",
        "erf",
        "sin",
        "cos",
        "floor",
        "round",
        "sign",
        "silu",
    ]
    plain += ["hardswish", "hardsigmoid", "elu", "expm1", "atan", "softplus", "mish"]
    rows = [Row(f"{name} f32", f"{name}.out", one()) for name in plain]
    rows += [
        Row(f"{name} f32", f"{name}.out", positive())
        for name in ("log", "sqrt", "rsqrt", "reciprocal", "log1p")
    ]
    rows += [
        Row("gelu f32", "gelu.out", one()),
        Row("gelu tanh f32", "gelu.out", one(), (("approximate", "tanh"),)),
        Row("leaky_relu f32", "leaky_relu.out", with_scalar(0.1)),
        Row("clamp f32", "clamp.out", lambda n: (values((n,)), -0.5, 0.5)),
        Row("relu f16", "relu.out", one(f16)),
        Row("exp bf16", "exp.out", one(bf16)),
        Row("neg i64", "neg.out", one(i64)),
        Row("abs i32", "abs.out", one(i32)),
        Row("exp f64", "exp.out", one(f64)),
        Row("sqrt f64", "sqrt.out", positive(f64)),
        Row("logical_not bool", "logical_not.out", one(b8)),
        Row("bitwise_not u8", "bitwise_not.out", one(u8)),
        Row("isnan f32", "ne.Tensor_out", lambda n: (lambda x: (x, x.clone()))(values((n,)))),
    ]
    return rows


def _binary() -> list[Row]:
    add, mul = "add.out", "mul.out"
    rows = [Row(f"{op} f32", f"{op}.out", two()) for op in ("add", "sub", "mul", "div", "maximum", "atan2")]
    rows += [Row(f"add {d}".replace("torch.", ""), add, two(d)) for d in (f64, f16, bf16, i64, i32, i8, u8)]
    rows += [
        Row("mul i64", mul, two(i64)),
        Row("mul f32 i64", mul, two(torch.float32, i64)),
        Row("mul bool f32", mul, two(b8, torch.float32)),
        Row("div i64", "div.out", two(i64)),
        Row("div floor i64", "div.out_mode", two(i64), (("rounding_mode", "floor"),)),
        Row("div floor f32", "div.out_mode", two(), (("rounding_mode", "floor"),)),
        Row("remainder f32", "remainder.Tensor_out", two()),
        Row("remainder i64", "remainder.Tensor_out", two(i64)),
        Row("fmod f32", "fmod.Tensor_out", two()),
        Row("pow 2 f32", "pow.Tensor_Scalar_out", with_scalar(2.0)),
        Row("pow 2.5 f32", "pow.Tensor_Scalar_out", lambda n: (values((n,)).abs() + 0.1, 2.5)),
        Row("pow tensors f32", "pow.Tensor_Tensor_out", lambda n: (values((n,)).abs() + 0.1, values((n,)))),
        Row("eq f32", "eq.Tensor_out", two()),
        Row("lt f32 number", "lt.Scalar_out", with_scalar(0.0)),
        Row("gt i64", "gt.Tensor_out", two(i64)),
        Row("eq i64 number", "eq.Scalar_out", with_scalar(3, i64)),
        Row("ge f64", "ge.Tensor_out", two(f64)),
        Row("logical_and bool", "logical_and.out", two(b8)),
        Row("bitwise_and i32", "bitwise_and.Tensor_out", two(i32)),
        Row("bitwise_or bool", "bitwise_or.Tensor_out", two(b8)),
        Row("add row f32", add, lambda n: (values(square(n)), values((square(n)[1],)))),
        Row("add column f32", add, lambda n: (values(square(n)), values((square(n)[0], 1)))),
        Row("mul channel f32", mul, lambda n: (values(image(n, 32)), values((32, 1, 1)))),
        Row("mul channel f32 channels-last", mul, lambda n: (last(values(image(n, 32))), values((32, 1, 1)))),
        Row("add outer f32", add, lambda n: (values((square(n)[0], 1)), values((square(n)[1],)))),
        Row("add row of 3 f32", add, lambda n: (values(rows_of(n, 3)), values((3,)))),
        Row("where f32", "where.self_out", lambda n: (values((n,), b8), values((n,)), values((n,)))),
        Row(
            "where i64", "where.self_out", lambda n: (values((n,), b8), values((n,), i64), values((n,), i64))
        ),
        Row("masked_fill f32", "masked_fill.Scalar_out", lambda n: (values((n,)), values((n,), b8), -1.0)),
        Row("addcmul f32", "addcmul.out", lambda n: (values((n,)), values((n,)), values((n,)))),
        Row("lerp f32", "lerp.Scalar_out", lambda n: (values((n,)), values((n,)), 0.3)),
    ]
    return rows


def _reductions() -> list[Row]:
    def over(dims: list[int], keep: bool = False, dtype: torch.dtype = torch.float32) -> Arguments:
        return lambda n: (values(square(n), dtype), dims, keep)

    def along(d: int, dtype: torch.dtype = torch.float32) -> Arguments:
        return lambda n: (values(square(n), dtype), d)

    return [
        Row("sum inner f32", "sum.IntList_out", over([1])),
        Row("sum outer f32", "sum.IntList_out", over([0])),
        Row("sum all f32", "sum.IntList_out", over([0, 1])),
        Row("sum inner f64", "sum.IntList_out", over([1], dtype=f64)),
        Row("sum inner bf16", "sum.IntList_out", over([1], dtype=bf16)),
        Row("sum all i64", "sum.IntList_out", over([0, 1], dtype=i64)),
        Row("mean inner f32", "mean.out", over([1])),
        Row("mean channels f32", "mean.out", lambda n: (values(image(n, 32)), [2, 3], True)),
        Row("amax inner f32", "amax.out", over([1])),
        Row("amax outer f32", "amax.out", over([0])),
        Row("prod inner f32", "prod.int_out", along(1)),
        Row("var inner f32", "var.correction_out", lambda n: (values(square(n)), [1]), (("correction", 1),)),
        Row("argmax inner f32", "argmax.out", along(1)),
        Row("argmax outer f32", "argmax.out", along(0)),
        Row("any inner bool", "any.out", lambda n: (torch.zeros(square(n), dtype=b8), 1)),
        Row("max with indices f32", "max.dim_max", along(1)),
        Row("cumsum inner f32", "cumsum.out", along(1)),
        Row("cumsum outer f32", "cumsum.out", along(0)),
        Row("cumsum i64", "cumsum.out", along(1, i64)),
        Row("softmax inner f32", "_softmax.out", lambda n: (values(square(n)), 1, False)),
        Row("softmax outer f32", "_softmax.out", lambda n: (values(square(n)), 0, False)),
        Row("log_softmax f32", "_log_softmax.out", lambda n: (values(square(n)), 1, False)),
        Row("softmax bf16", "_softmax.out", lambda n: (values(square(n), bf16), 1, False)),
        # No two are equal: eager orders equal elements as it likes.
        Row("sort f32", "sort.values", lambda n: (distinct(square(n)), 1)),
        Row("sort i64", "sort.values", lambda n: (distinct(square(n)).long(), 1)),
        Row("topk 5 f32", "topk.values", lambda n: (values(square(n)), 5)),
        Row("median f32", "median.dim_values", along(1)),
    ]


def _norms() -> list[Row]:
    def layer(n: int) -> tuple[Any, ...]:
        rows, length = rows_of(n, min(n, 384))
        return values((rows, length)), [length], values((length,)), values((length,)), 1e-5

    def group(n: int) -> tuple[Any, ...]:
        x = values(image(n, 32))
        return x, values((32,)), values((32,)), 1, 32, x.shape[2] * x.shape[3], 8, 1e-5

    def batch(channels_last: bool) -> Arguments:
        def make(n: int) -> tuple[Any, ...]:
            x = values(image(n, 32))
            x = last(x) if channels_last else x
            statistics = (values((32,)), values((32,)), values((32,)), values((32,)).abs() + 1)
            return x, *statistics, 0.1, 1e-5

        return make

    return [
        Row("layer_norm f32", "native_layer_norm.out", layer),
        Row("group_norm f32", "native_group_norm.out", group),
        Row("batch_norm f32", "_native_batch_norm_legit_no_training.out", batch(channels_last=False)),
        Row(
            "batch_norm f32 channels-last",
            "_native_batch_norm_legit_no_training.out",
            batch(channels_last=True),
        ),
    ]


def _movement() -> list[Row]:
    def with_index(d: int) -> Arguments:
        def make(n: int) -> tuple[Any, ...]:
            x = values(square(n))
            return x, d, torch.randint(0, x.shape[d], tuple(x.shape))

        return make

    def scatter(n: int) -> tuple[Any, ...]:
        x = values(square(n))
        return x, 1, torch.randint(0, x.shape[1], tuple(x.shape)), values(square(n))

    return [
        Row("cat 0 f32", "cat.out", lambda n: ([values(square(n // 2)), values(square(n // 2))], 0)),
        Row("cat 1 f32", "cat.out", lambda n: ([values(square(n // 2)), values(square(n // 2))], 1)),
        Row("stack f32", "stack.out", lambda n: ([values(square(n // 2)), values(square(n // 2))], 1)),
        Row("slice f32", "slice_copy.Tensor_out", lambda n: (values(square(n)), 1, 1, square(n)[1] // 2, 1)),
        Row(
            "slice step 2 f32", "slice_copy.Tensor_out", lambda n: (values(square(n)), 1, 0, square(n)[1], 2)
        ),
        Row("select f32", "select_copy.int_out", lambda n: (values((n // 4, 4)), 1, 2)),
        Row("transpose f32", "permute_copy.out", lambda n: (values(square(n)), [1, 0])),
        Row("transpose u8", "permute_copy.out", lambda n: (values(square(n), u8), [1, 0])),
        Row("permute heads f32", "permute_copy.out", lambda n: (values((1, n // 256, 4, 64)), [0, 2, 1, 3])),
        Row("planes to pixels u8", "permute_copy.out", lambda n: (values(image(n, 3), u8), [0, 2, 3, 1])),
        Row("planes to pixels f32", "permute_copy.out", lambda n: (values(image(n, 3)), [0, 2, 3, 1])),
        Row("to channels-last f32", "permute_copy.out", lambda n: (values(image(n, 32)), [0, 2, 3, 1])),
        Row("expand f32", "expand_copy.out", lambda n: (values((square(n)[0], 1)), list(square(n)))),
        Row("flip f32", "flip.out", lambda n: (values(square(n)), [1])),
        Row("roll f32", "roll.out", lambda n: (values(square(n)), [3], [1])),
        Row("repeat f32", "repeat.out", lambda n: (values(square(n // 4)), [2, 2])),
        Row("pad constant f32", "constant_pad_nd.out", lambda n: (values(image(n, 8)), [1, 1, 1, 1], 0.0)),
        Row("pad reflection f32", "reflection_pad2d.out", lambda n: (values(image(n, 8)), [1, 1, 1, 1])),
        Row("tril f32", "tril.out", lambda n: (values(square(n)), 0)),
        Row("gather 1 f32", "gather.out", with_index(1)),
        Row("gather 0 f32", "gather.out", with_index(0)),
        Row("scatter f32", "scatter.src_out", scatter),
        Row("scatter_add f32", "scatter_add.out", scatter),
        Row(
            "index rows f32",
            "index.Tensor_out",
            lambda n: (values(rows_of(n, 64)), [positions(max(1, n // 64), n // 64)]),
        ),
        Row("index elements f32", "index.Tensor_out", lambda n: (values((n,)), [positions(n, n)])),
        Row(
            "index_select f32",
            "index_select.out",
            lambda n: (values(square(n)), 1, positions(square(n)[1], square(n)[1])),
        ),
        Row(
            "index_put f32",
            "index_put.out",
            lambda n: (values(rows_of(n, 64)), [positions(n // 128, n // 64)], values((n // 128, 64))),
        ),
        Row(
            "embedding f32", "embedding.out", lambda n: (values((1000, 64)), positions(max(1, n // 64), 1000))
        ),
        Row("nonzero bool", "nonzero.out", lambda n: (values((n,), b8),)),
        Row("pixel_shuffle f32", "pixel_shuffle.out", lambda n: (values(image(n, 16)), 2)),
        Row("full f32", "full.out", lambda n: ([n], 1.5)),
        Row("arange f32", "arange.start_out", lambda n: (0.0, float(n), 1.0)),
        Row("arange i64", "arange.start_out", lambda n: (0, n, 1), (("dtype", i64),)),
    ] + [
        Row(f"cast {name}", "_to_copy.out", one(a), (("dtype", b),))
        for name, a, b in [
            ("f32 to f16", torch.float32, f16),
            ("bf16 to f32", bf16, torch.float32),
            ("i64 to f32", i64, torch.float32),
            ("f32 to i64", torch.float32, i64),
            ("bool to f32", b8, torch.float32),
            ("i64 to i32", i64, i32),
            ("f32 to u8", torch.float32, u8),
        ]
    ]


def _images() -> list[Row]:
    def twice(n: int, channels: int = 8) -> tuple[Tensor, list[int]]:
        x = values(image(n // 4, channels))
        return x, [2 * x.shape[2], 2 * x.shape[3]]

    pool = ([2, 2], [2, 2], [0, 0])
    return [
        Row("upsample nearest f32", "upsample_nearest2d.out", lambda n: (*twice(n), 2.0, 2.0)),
        Row("upsample bilinear f32", "upsample_bilinear2d.out", lambda n: (*twice(n), False, 2.0, 2.0)),
        Row("upsample bicubic f32", "upsample_bicubic2d.out", lambda n: (*twice(n), False, 2.0, 2.0)),
        Row("max_pool 2 f32", "max_pool2d_with_indices.out", lambda n: (values(image(n, 16)), *pool)),
        Row(
            "max_pool 3 f32 channels-last",
            "max_pool2d_with_indices.out",
            lambda n: (last(values(image(n, 16))), [3, 3], [2, 2], [1, 1]),
        ),
        Row("avg_pool 2 f32", "avg_pool2d.out", lambda n: (values(image(n, 16)), *pool)),
        Row("adaptive_avg_pool 7 f32", "_adaptive_avg_pool2d.out", lambda n: (values(image(n, 16)), [7, 7])),
        Row(
            "max_pool3d f32",
            "max_pool3d_with_indices.out",
            lambda n: (
                values((1, 4, 8, max(4, int((n / 32) ** 0.5)), max(4, int((n / 32) ** 0.5)))),
                [2, 2, 2],
            ),
        ),
    ]


def _products() -> list[Row]:
    def side(n: int) -> int:
        return max(8, int(n**0.5) // 2)

    return [
        Row("mm f32", "mm.out", lambda n: (values((side(n), side(n))), values((side(n), side(n))))),
        Row(
            "mm f64",
            "mm.out",
            lambda n: (values((side(n) // 2, side(n) // 2), f64), values((side(n) // 2, side(n) // 2), f64)),
        ),
        Row(
            "addmm f32",
            "addmm.out",
            lambda n: (values((side(n),)), values((side(n), side(n))), values((side(n), side(n)))),
        ),
        Row("matrix times vector f32", "mm.out", lambda n: (values(square(n)), values((square(n)[1], 1)))),
        Row("vector times matrix f32", "mm.out", lambda n: (values((1, square(n)[1])), values(square(n)))),
        Row(
            "bmm f32",
            "bmm.out",
            lambda n: (values((4, side(n) // 2, side(n) // 2)), values((4, side(n) // 2, side(n) // 2))),
        ),
    ]


ROWS = [*_unary(), *_binary(), *_reductions(), *_norms(), *_movement(), *_images(), *_products()]
