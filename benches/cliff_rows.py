"""Rows of `operator_speed.py --rows cliff`: operators over many element types, to find what is far behind.

`operator_rows.py` has what models spend their time in, in the types that they use. These rows are wide
instead: an operator that nobody looked at may be many times slower than eager PyTorch, unnoticed.
"""

from __future__ import annotations

from typing import Any

import torch
from cliff_arguments import ALL, FLOATS, INTEGERS, above, each, f32, short, unequal, unit
from cliff_layers import ROWS as LAYERS
from cliff_rest import ROWS as REST
from operator_rows import (
    Arguments,
    Row,
    b8,
    f64,
    image,
    positions,
    rows_of,
    square,
    values,
)


def _unary() -> list[Row]:
    rows: list[Row] = []
    for name in (
        "relu",
        "sigmoid",
        "tanh",
        "exp",
        "erf",
        "sin",
        "cos",
        "silu",
        "hardswish",
        "elu",
        "expm1",
        "atan",
    ):
        rows += each(name, f"{name}.out", lambda d: lambda n: (values((n,), d),))
    for name in (
        "softplus",
        "mish",
        "hardsigmoid",
        "gelu",
        "leaky_relu",
        "tan",
        "sinh",
        "cosh",
        "asinh",
        "erfc",
        "exp2",
    ):
        rows += each(name, f"{name}.out", lambda d: lambda n: (values((n,), d),))
    for name in ("round", "floor", "ceil", "trunc", "frac", "i0", "special_i1", "special_i0e", "special_i1e"):
        rows += each(name, f"{name}.out", lambda d: lambda n: (values((n,), d),))
    for name in ("special_bessel_j0", "special_bessel_j1", "special_modified_bessel_i0"):
        rows += each(name, f"{name}.out", lambda d: lambda n: (values((n,), d),), (f32, f64))
    for name in ("asin", "acos", "atanh", "erfinv"):
        rows += each(name, f"{name}.out", lambda d: lambda n: (unit((n,), d),))
    for name in (
        "log",
        "log2",
        "log10",
        "log1p",
        "sqrt",
        "rsqrt",
        "reciprocal",
        "lgamma",
        "digamma",
        "acosh",
    ):
        rows += each(name, f"{name}.out", lambda d: lambda n: (above((n,), d),))
    rows += each("logit", "logit.out", lambda d: lambda n: ((torch.rand(n) * 0.9 + 0.05).to(d),))
    rows += each("polygamma", "polygamma.out", lambda d: lambda n: (2, above((n,), d)), (f32, f64))
    for name in ("neg", "abs", "sign", "sgn", "square", "signbit", "isnan", "isinf"):
        dtypes = (*FLOATS, *INTEGERS) if name in ("neg", "abs", "sign", "sgn", "signbit") else FLOATS
        if name not in ("isnan", "square"):
            rows += each(name, f"{name}.out", lambda d: lambda n: (values((n,), d),), dtypes)
    rows += each("logical_not", "logical_not.out", lambda d: lambda n: (values((n,), d),), ALL)
    rows += each("bitwise_not", "bitwise_not.out", lambda d: lambda n: (values((n,), d),), (*INTEGERS, b8))
    rows += each("clamp", "clamp.out", lambda d: lambda n: (values((n,), d), -1, 1), (*FLOATS, *INTEGERS))
    rows += each("hardtanh", "hardtanh.out", lambda d: lambda n: (values((n,), d), -1.0, 1.0), FLOATS)
    return rows


def _binary() -> list[Row]:
    def two(d: torch.dtype) -> Arguments:
        return lambda n: (values((n,), d), values((n,), d))

    def positive(d: torch.dtype) -> Arguments:
        return lambda n: (above((n,), d), above((n,), d))

    rows: list[Row] = []
    for name in ("add", "sub", "mul", "div", "maximum", "minimum"):
        rows += each(name, f"{name}.out", two, (*FLOATS, *INTEGERS))
    for name in ("fmax", "fmin", "copysign", "hypot", "nextafter", "atan2", "heaviside"):
        dtypes = (f32, f64) if name == "nextafter" else FLOATS
        rows += each(name, f"{name}.out", two, dtypes)
    for name in ("gcd", "lcm"):
        rows += each(name, f"{name}.out", two, INTEGERS)
    for name in ("igamma", "igammac", "special_zeta"):
        rows += each(name, f"{name}.out", positive, (f32, f64))
    rows += each("fmod", "fmod.Tensor_out", two, (*FLOATS, *INTEGERS))
    rows += each("remainder", "remainder.Tensor_out", two, (*FLOATS, *INTEGERS))
    rows += each("floor_divide", "floor_divide.out", two, (*FLOATS, *INTEGERS))
    rows += each("div trunc", "div.out_mode", two, (*FLOATS, *INTEGERS), (("rounding_mode", "trunc"),))
    rows += each("pow", "pow.Tensor_Tensor_out", positive, (*FLOATS, *INTEGERS))
    rows += each(
        "pow 3", "pow.Tensor_Scalar_out", lambda d: lambda n: (values((n,), d), 3), (*FLOATS, *INTEGERS)
    )
    rows += each("pow 0.5", "pow.Tensor_Scalar_out", lambda d: lambda n: (above((n,), d), 0.5))
    for name in ("eq", "ne", "lt", "ge"):
        rows += each(name, f"{name}.Tensor_out", two, ALL)
    for name in ("bitwise_and", "bitwise_xor"):
        rows += each(name, f"{name}.Tensor_out", two, (*INTEGERS, b8))
    for name in ("bitwise_left_shift", "bitwise_right_shift"):
        rows += each(
            name,
            f"{name}.Tensor_out",
            lambda d: lambda n: (values((n,), d), torch.full((n,), 3, dtype=d)),
            INTEGERS,
        )
    for name in ("logical_and", "logical_xor"):
        rows += each(name, f"{name}.out", two, ALL)
    rows += each(
        "where",
        "where.self_out",
        lambda d: lambda n: (values((n,), b8), values((n,), d), values((n,), d)),
        ALL,
    )
    rows += each(
        "masked_fill",
        "masked_fill.Scalar_out",
        lambda d: lambda n: (values((n,), d), values((n,), b8), 1),
        ALL,
    )
    rows += each("addcmul", "addcmul.out", lambda d: lambda n: (values((n,), d),) * 3, (*FLOATS, *INTEGERS))
    rows += each("addcdiv", "addcdiv.out", lambda d: lambda n: (values((n,), d),) * 3)
    rows += each("lerp", "lerp.Scalar_out", lambda d: lambda n: (values((n,), d), values((n,), d), 0.3))
    return rows


def _reductions() -> list[Row]:
    rows: list[Row] = []
    wide = (*FLOATS, *INTEGERS)
    for dims, which in (([1], "inner"), ([0], "outer"), ([0, 1], "all")):
        rows += each(
            f"sum {which}",
            "sum.IntList_out",
            lambda d, k=dims: lambda n: (values(square(n), d), k, False),
            ALL,
        )
        rows += each(
            f"mean {which}", "mean.out", lambda d, k=dims: lambda n: (values(square(n), d), k, False)
        )
        rows += each(
            f"amax {which}", "amax.out", lambda d, k=dims: lambda n: (values(square(n), d), k, False), ALL
        )
        rows += each(
            f"amin {which}", "amin.out", lambda d, k=dims: lambda n: (values(square(n), d), k, False), wide
        )
        rows += each(
            f"var {which}",
            "var.correction_out",
            lambda d, k=dims: lambda n: (values(square(n), d), k),
            FLOATS,
        )
        rows += each(
            f"norm {which}",
            "linalg_vector_norm.out",
            lambda d, k=dims: lambda n: (values(square(n), d), 2, k),
            FLOATS,
        )
        rows += each(
            f"logsumexp {which}",
            "logsumexp.out",
            lambda d, k=dims: lambda n: (values(square(n), d), k),
            FLOATS,
        )
    for dim, which in ((1, "inner"), (0, "outer")):
        for name, overload, dtypes in (
            ("prod", "prod.int_out", wide),
            ("argmax", "argmax.out", wide),
            ("any", "any.out", ALL),
            ("all", "all.out", ALL),
            ("max dim", "max.dim_max", wide),
            ("min dim", "min.dim_min", wide),
            ("cumsum", "cumsum.out", wide),
            ("cumprod", "cumprod.out", wide),
            ("cummax", "cummax.out", wide),
            ("logcumsumexp", "logcumsumexp.out", FLOATS),
            ("median", "median.dim_values", wide),
        ):
            rows += each(
                f"{name} {which}", overload, lambda d, k=dim: lambda n: (values(square(n), d), k), dtypes
            )
        rows += each(f"sort {which}", "sort.values", lambda d, k=dim: lambda n: (unequal(n, d, k), k), wide)
        for name in ("_softmax", "_log_softmax"):
            rows += each(
                f"{name} {which}", f"{name}.out", lambda d, k=dim: lambda n: (values(square(n), d), k, False)
            )
    rows += each("topk 5", "topk.values", lambda d: lambda n: (unequal(n, d, 1), 5), wide)
    rows += each("kthvalue", "kthvalue.values", lambda d: lambda n: (unequal(n, d, 1), 3), wide)
    rows += each("mode", "mode.values", lambda d: lambda n: (values(square(n), d), 1), (f32,))
    rows += each("histc", "histc.out", lambda d: lambda n: (values((n,), d), 100), (f32, f64))
    rows += each("bincount", "bincount.out", lambda d: lambda n: (positions(n, 1000).to(d),), INTEGERS)
    rows += each(
        "searchsorted",
        "searchsorted.Tensor_out",
        lambda d: lambda n: (torch.linspace(-3, 3, 1000).to(d), values((n,), d)),
        (f32, f64),
    )
    rows += each(
        "bucketize",
        "bucketize.Tensor_out",
        lambda d: lambda n: (values((n,), d), torch.linspace(-3, 3, 30).to(d)),
        (f32, f64),
    )
    rows += each("dot", "dot.out", lambda d: lambda n: (values((n,), d), values((n,), d)), wide)
    return rows


def _movement() -> list[Row]:
    wide = ALL

    def along(d: torch.dtype, k: int) -> Arguments:
        def make(n: int) -> tuple[Any, ...]:
            x = values(square(n), d)
            return x, k, torch.randint(0, x.shape[k], tuple(x.shape))

        return make

    def scatter(d: torch.dtype, k: int, *more: Any) -> Arguments:
        return lambda n: (*along(d, k)(n), values(square(n), d), *more)

    rows = [
        *each("cat 1", "cat.out", lambda d: lambda n: ([values(square(n // 2), d)] * 2, 1), wide),
        *each("transpose", "permute_copy.out", lambda d: lambda n: (values(square(n), d), [1, 0]), wide),
        *each(
            "permute",
            "permute_copy.out",
            lambda d: lambda n: (values((n // 4096, 16, 16, 16), d), [0, 3, 1, 2]),
            wide,
        ),
        *each(
            "expand",
            "expand_copy.out",
            lambda d: lambda n: (values((square(n)[0], 1), d), list(square(n))),
            wide,
        ),
        *each("flip 0", "flip.out", lambda d: lambda n: (values(square(n), d), [0]), wide),
        *each("flip 1", "flip.out", lambda d: lambda n: (values(square(n), d), [1]), wide),
        *each("roll", "roll.out", lambda d: lambda n: (values(square(n), d), [3], [1]), wide),
        *each("repeat", "repeat.out", lambda d: lambda n: (values(square(n // 4), d), [2, 2]), wide),
        *each(
            "slice step 2",
            "slice_copy.Tensor_out",
            lambda d: lambda n: (values(square(n), d), 1, 0, square(n)[1], 2),
            wide,
        ),
        *each("tril", "tril.out", lambda d: lambda n: (values(square(n), d), 0), wide),
        *each(
            "constant_pad",
            "constant_pad_nd.out",
            lambda d: lambda n: (values(image(n, 8), d), [1, 1, 1, 1], 0),
            wide,
        ),
        *each(
            "reflection_pad1d",
            "reflection_pad1d.out",
            lambda d: lambda n: (values(rows_of(n, 1024), d), [3, 3]),
        ),
        *each(
            "reflection_pad2d",
            "reflection_pad2d.out",
            lambda d: lambda n: (values(image(n, 8), d), [1, 1, 1, 1]),
        ),
        *each(
            "replication_pad2d",
            "replication_pad2d.out",
            lambda d: lambda n: (values(image(n, 8), d), [1, 1, 1, 1]),
        ),
        *each(
            "replication_pad3d",
            "replication_pad3d.out",
            lambda d: lambda n: (values((4, 16, 32, n // 2048), d), [1, 1, 1, 1, 1, 1]),
        ),
        *each(
            "index rows",
            "index.Tensor_out",
            lambda d: lambda n: (values(rows_of(n, 64), d), [positions(n // 64, n // 64)]),
            wide,
        ),
        *each(
            "index elements",
            "index.Tensor_out",
            lambda d: lambda n: (values((n,), d), [positions(n, n)]),
            wide,
        ),
        *each(
            "index two",
            "index.Tensor_out",
            lambda d: (
                lambda n: (values(square(n), d), [positions(n, square(n)[0]), positions(n, square(n)[1])])
            ),
        ),
        *each(
            "index_select 0",
            "index_select.out",
            lambda d: lambda n: (values(square(n), d), 0, positions(*[square(n)[0]] * 2)),
            wide,
        ),
        *each(
            "index_select 1",
            "index_select.out",
            lambda d: lambda n: (values(square(n), d), 1, positions(*[square(n)[1]] * 2)),
            wide,
        ),
        *each(
            "index_put add",
            "index_put.out",
            lambda d: (
                lambda n: (
                    values(rows_of(n, 64), d),
                    [positions(n // 128, n // 64)],
                    values((n // 128, 64), d),
                    True,
                )
            ),
        ),
        *each(
            "embedding",
            "embedding.out",
            lambda d: lambda n: (values((1000, 64), d), positions(n // 64, 1000)),
            FLOATS,
        ),
        *each(
            "masked_select", "masked_select.out", lambda d: lambda n: (values((n,), d), values((n,), b8)), ALL
        ),
        *each(
            "masked_scatter",
            "masked_scatter.out",
            lambda d: lambda n: (values((n,), d), values((n,), b8), values((n,), d)),
            ALL,
        ),
        *each(
            "im2col",
            "im2col.out",
            lambda d: lambda n: (values(image(n // 8, 8), d), [3, 3], [1, 1], [1, 1], [1, 1]),
        ),
        *each(
            "pixel_unshuffle",
            "pixel_unshuffle.out",
            lambda d: (
                lambda n: (values((1, 16, square(n // 16)[0] // 4 * 4, 4 * (square(n // 16)[0] // 4)), d), 2)
            ),
        ),
    ]
    for k, which in ((1, "inner"), (0, "outer")):
        rows += each(f"gather {which}", "gather.out", lambda d, k=k: along(d, k), ALL)
        rows += each(f"scatter {which}", "scatter.src_out", lambda d, k=k: scatter(d, k), ALL)
        rows += each(
            # Not of 16 bits: what many sums into one element round to depends on their order.
            f"scatter_add {which}",
            "scatter_add.out",
            lambda d, k=k: scatter(d, k),
            (f32, f64, *INTEGERS),
        )
        rows += each(
            f"scatter_reduce {which}",
            "scatter_reduce.two_out",
            lambda d, k=k: scatter(d, k, "amax"),
            (*FLOATS, *INTEGERS),
        )
        rows += each(
            f"index_reduce {which}",
            "index_reduce.out",
            lambda d, k=k: (
                lambda n: (
                    values(square(n), d),
                    k,
                    positions(*[square(n)[k]] * 2),
                    values(square(n), d),
                    "amax",
                )
            ),
        )
    for a, b in [(a, b) for a in ALL for b in ALL if a != b]:
        rows.append(
            Row(
                f"cast {short(a)} to {short(b)}",
                "_to_copy.out",
                lambda n, a=a: (values((n,), a),),
                (("dtype", b),),
            )
        )
    return rows


ROWS = [*_unary(), *_binary(), *_reductions(), *_movement(), *LAYERS, *REST]
