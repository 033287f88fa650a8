"""Rows of `cliff_rows.py` for what `cliff_rows.py` and `cliff_layers.py` leave out: gradients, random
numbers, copies of views, statistics, factorizations, and rare relatives of other operators.
"""

from __future__ import annotations

from typing import Any

import torch
from cliff_arguments import ALL, FLOATS, INTEGERS, above, each, f32, unit
from operator_rows import Arguments, Row, f64, i64, image, positions, rows_of, square, values

aten = torch.ops.aten
WIDE = (*FLOATS, *INTEGERS)


def _elementwise() -> list[Row]:
    def two(d: torch.dtype) -> Arguments:
        return lambda n: (values((n,), d), values((n,), d))

    rows = [
        *each("isnan", "isnan.out", lambda d: lambda n: (values((n,), d),), FLOATS),
        *each("square", "square.out", lambda d: lambda n: (values((n,), d),), WIDE),
        *each("angle", "angle.out", lambda d: lambda n: (values((n,), d),), (f32, f64)),
        *each("rsub", "rsub.Tensor_out", two, WIDE),
        *each("le", "le.Tensor_out", two, ALL),
        *each("le number", "le.Scalar_out", lambda d: lambda n: (values((n,), d), 1), WIDE),
        *each("logical_or", "logical_or.out", two, ALL),
        *each("glu", "glu.out", lambda d: lambda n: (values((2, n), d), 0), FLOATS),
        *each("frexp", "frexp.Tensor_out", lambda d: lambda n: (values((n,), d),), (f32, f64)),
        Row("complex f32", "complex.out", two(f32)),
        Row("polar f32", "polar.out", lambda n: (above((n,), f32), values((n,)))),
    ]
    for name in ("special_bessel_y0", "special_bessel_y1", "special_modified_bessel_i1"):
        rows += each(name, f"{name}.out", lambda d: lambda n: (above((n,), d),), (f32, f64))
    for name in ("conj_physical", "angle", "abs", "exp", "neg"):
        rows.append(Row(f"{name} c64", f"{name}.out", lambda n: (torch.complex(*two(f32)(n)),)))
    for name in ("add", "mul", "div"):
        rows.append(
            Row(f"{name} c64", f"{name}.out", lambda n: (torch.complex(*two(f32)(n)),) * 2),
        )
    return rows


def _statistics() -> list[Row]:
    rows = []
    for dims, which in (([1], "inner"), ([0], "outer"), ([0, 1], "all")):
        for name, overload in (("std", "std.correction_out"), ("var_mean", "var_mean.correction_out")):
            rows += each(
                f"{name} {which}", overload, lambda d, k=dims: lambda n: (values(square(n), d), k), FLOATS
            )
    for dim, which in ((1, "inner"), (0, "outer")):
        for name, overload in (
            ("argmin", "argmin.out"),
            ("cummin", "cummin.out"),
            ("nanmedian", "nanmedian.dim_values"),
        ):
            rows += each(
                f"{name} {which}", overload, lambda d, k=dim: lambda n: (values(square(n), d), k), WIDE
            )
    rows += each("nanmedian all", "nanmedian.out", lambda d: lambda n: (values((n,), d),), WIDE)
    rows += each(
        "unique_consecutive",
        "unique_consecutive.out",
        lambda d: lambda n: (values((n // 4,), d).repeat_interleave(4), True, True),
        (f32, *INTEGERS),
    )
    rows += each(
        "unique",
        "_unique2.out",
        lambda d: lambda n: (values((n,), d), True, True, True),
        (f32, i64),
    )
    rows += each(
        "unique rows",
        "unique_dim.out",
        lambda d: lambda n: (values((n // 64, 4), d).repeat(16, 1), 0),
        (f32, i64),
    )
    return rows


def _creation() -> list[Row]:
    rows = [
        *each("fill", "fill.Scalar_out", lambda d: lambda n: (values((n,), d), 1), ALL),
        *each("zeros_like", "zeros_like.out", lambda d: lambda n: (values((n,), d),), ALL),
        *each("full_like", "full_like.out", lambda d: lambda n: (values((n,), d), 1), ALL),
        Row("eye f32", "eye.m_out", lambda n: square(n)),
        Row("ones f32", "ones.out", lambda n: ([n],)),
        Row("zeros f32", "zeros.out", lambda n: ([n],)),
    ]
    random: list[tuple[str, str, Arguments]] = [
        ("rand", "rand.out", lambda n: ([n],)),
        ("randn", "randn.out", lambda n: ([n],)),
        ("randint", "randint.low_out", lambda n: (-100, 100, [n])),
        ("randperm", "randperm.out", lambda n: (n,)),
        ("bernoulli", "bernoulli.out", lambda n: (torch.rand(n),)),
        ("bernoulli number", "bernoulli.float_out", lambda n: (torch.rand(n), 0.3)),
        ("normal", "normal.Tensor_Tensor_out", lambda n: (values((n,)), above((n,), f32))),
        ("uniform", "uniform.out", lambda n: (values((n,)), -1.0, 1.0)),
        ("exponential", "exponential.out", lambda n: (values((n,)),)),
        ("cauchy", "cauchy.out", lambda n: (values((n,)),)),
        ("log_normal", "log_normal.out", lambda n: (values((n,)),)),
        ("geometric", "geometric.out", lambda n: (values((n,)), 0.3)),
        ("poisson", "poisson.out", lambda n: (above((n,), f32),)),
        ("binomial", "binomial.out", lambda n: (above((n,), f32).round() * 4, torch.rand(n))),
        ("multinomial", "multinomial.out", lambda n: (torch.rand(rows_of(n, 1024)), 16, True)),
        ("native_dropout", "native_dropout.out", lambda n: (values((n,)), 0.5, True)),
    ]
    rows += [Row(f"{name} f32", overload, make, is_compared=False) for name, overload, make in random]
    return rows


def _movement() -> list[Row]:
    cube = (32, 32)
    views: list[tuple[str, str, tuple[Any, ...]]] = [
        ("view_copy", "view_copy.out", ([-1],)),
        ("unsqueeze_copy", "unsqueeze_copy.out", (1,)),
        ("squeeze_copy", "squeeze_copy.out", ()),
        ("transpose_copy", "transpose_copy.int_out", (0, 1)),
        ("select_copy inner", "select_copy.int_out", (2, 3)),
        ("narrow_copy", "narrow_copy.out", (2, 1, 20)),
        ("diagonal_copy", "diagonal_copy.out", (0, 1, 2)),
        ("unfold_copy", "unfold_copy.out", (2, 8, 2)),
        ("clone", "clone.out", ()),
        ("triu", "triu.out", (1,)),
    ]
    rows = []
    for name, overload, more in views:
        rows += each(
            name, overload, lambda d, m=more: lambda n: (values((n // 1024, *cube), d), *m), (f32, f64, i64)
        )
    rows += [
        *each(
            "as_strided_copy",
            "as_strided_copy.out",
            lambda d: lambda n: (values((2 * n,), d), [n // 64, 64], [128, 2]),
            (f32, i64),
        ),
        *each(
            "select_scatter",
            "select_scatter.out",
            lambda d: lambda n: (values(square(n), d), values((square(n)[0],), d), 1, 3),
            (f32, i64),
        ),
        *each(
            "slice_scatter",
            "slice_scatter.out",
            lambda d: (
                lambda n: (
                    values(square(n), d),
                    values((square(n)[0], square(n)[1] // 2), d),
                    1,
                    0,
                    square(n)[1],
                    2,
                )
            ),
            (f32, i64),
        ),
        *each(
            "put",
            "put.out",
            lambda d: lambda n: (values((n,), d), torch.randperm(n)[: n // 2], values((n // 2,), d)),
            (f32, i64),
        ),
        Row(
            "repeat_interleave i64",
            "repeat_interleave.Tensor_out",
            lambda n: (torch.randint(0, 4, (n // 2,)),),
        ),
        *each(
            "reflection_pad3d",
            "reflection_pad3d.out",
            lambda d: lambda n: (values((1, 4, 16, 32, n // 2048), d), [1, 1, 1, 1, 1, 1]),
        ),
        *each(
            "replication_pad1d",
            "replication_pad1d.out",
            lambda d: lambda n: (values(rows_of(n, 1024), d), [3, 3]),
        ),
    ]
    for rank, sizes in ((1, [2048]), (2, [64, 64]), (3, [16, 16, 16])):
        rows += each(
            f"nearest-exact{rank}d",
            f"_upsample_nearest_exact{rank}d.out",
            lambda d, r=rank, s=sizes: (
                lambda n: (values((1, n // 4096, *[e // 2 for e in s]), d), s, *[None] * r)
            ),
        )
    rows += each(
        "bicubic aa",
        "_upsample_bicubic2d_aa.out",
        lambda d: lambda n: (values(image(n, 8), d), [40, 40], False, None, None),
        (f32, f64),
    )
    return rows


def _layers() -> list[Row]:
    def bag(d: torch.dtype, mode: int) -> Arguments:
        def make(n: int) -> tuple[Any, ...]:
            count = max(4, n // 64)
            return values((1000, 64), d), positions(count, 1000), torch.arange(0, count, 4), False, mode

        return make

    def training(d: torch.dtype) -> Arguments:
        def make(n: int) -> tuple[Any, ...]:
            return values(image(n, 32), d), values((32,), d), values((32,), d), True, 0.1, 1e-5

        return make

    def cubes(n: int) -> tuple[int, ...]:
        side = max(4, int((n / 8) ** (1 / 3)))
        return 1, 8, side, side, side

    return [
        *each("embedding_bag sum", "_embedding_bag_forward_only.out", lambda d: bag(d, 0)),
        *each("embedding_bag max", "_embedding_bag_forward_only.out", lambda d: bag(d, 2), (f32, f64)),
        *each("batch_norm training", "_native_batch_norm_legit.no_stats_out", training, (f32, f64)),
        *each(
            "avg_pool1d",
            "avg_pool1d.out",
            lambda d: lambda n: (values((1, 16, n // 16), d), [3], [2], [1]),
        ),
        *each(
            "adaptive_avg_pool1d",
            "adaptive_avg_pool1d.out",
            lambda d: lambda n: (values((1, 16, n // 16), d), [7]),
        ),
        *each(
            "adaptive_avg_pool3d",
            "_adaptive_avg_pool3d.out",
            lambda d: lambda n: (values(cubes(n), d), [3, 3, 3]),
        ),
        *each(
            "adaptive_max_pool3d",
            "adaptive_max_pool3d.out",
            lambda d: lambda n: (values(cubes(n), d), [3, 3, 3]),
        ),
        *each(
            "col2im",
            "col2im.out",
            lambda d: (
                lambda n: (
                    values((1, 72, 1024), d),
                    [32, 32],
                    [3, 3],
                    [1, 1],
                    [1, 1],
                    [1, 1],
                )
            ),
        ),
    ]


def _gradients() -> list[Row]:
    pool = ([3, 3], [2, 2], [1, 1])

    def layer(d: torch.dtype) -> Arguments:
        def make(n: int) -> tuple[Any, ...]:
            x = values(rows_of(n, 384), d)
            w, b = values((384,), d), values((384,), d)
            _, mean, rstd = aten.native_layer_norm(x, [384], w, b, 1e-5)
            return values(tuple(x.shape), d), x, [384], mean, rstd, w, b, [True, True, True]

        return make

    def group(d: torch.dtype) -> Arguments:
        def make(n: int) -> tuple[Any, ...]:
            x = values(image(n, 32), d)
            w, b = values((32,), d), values((32,), d)
            pixels = x.shape[2] * x.shape[3]
            _, mean, rstd = aten.native_group_norm(x, w, b, 1, 32, pixels, 8, 1e-5)
            return values(tuple(x.shape), d), x, mean, rstd, w, 1, 32, pixels, 8, [True, True, True]

        return make

    def average(d: torch.dtype) -> Arguments:
        def make(n: int) -> tuple[Any, ...]:
            x = values(image(n, 16), d)
            y = aten.avg_pool2d(x, *pool, False, True, None)
            return values(tuple(y.shape), d), x, *pool, False, True, None

        return make

    def largest(d: torch.dtype) -> Arguments:
        def make(n: int) -> tuple[Any, ...]:
            x = values(image(n, 16), d)
            y, places = aten.max_pool2d_with_indices(x, *pool)
            return values(tuple(y.shape), d), x, *pool, [1, 1], False, places

        return make

    def adaptive(d: torch.dtype) -> Arguments:
        return lambda n: (values((1, 16, 7, 7), d), values(image(n, 16), d))

    def convolution(d: torch.dtype) -> Arguments:
        def make(n: int) -> tuple[Any, ...]:
            x = values(image(n // 4, 16), d)
            w = values((16, 16, 3, 3), d)
            grad = values(tuple(x.shape), d)
            return grad, x, w, [16], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, True]

        return make

    def embedding(d: torch.dtype) -> Arguments:
        return lambda n: (values(rows_of(n, 64), d), positions(rows_of(n, 64)[0], 1000), 1000, -1, False)

    both = (f32, f64)
    return [
        *each("layer_norm backward", "native_layer_norm_backward.out", layer, both),
        *each("group_norm backward", "native_group_norm_backward.out", group, both),
        *each("avg_pool2d backward", "avg_pool2d_backward.grad_input", average, both),
        *each("max_pool2d backward", "max_pool2d_with_indices_backward.grad_input", largest, both),
        *each("adaptive_avg_pool2d backward", "_adaptive_avg_pool2d_backward.out", adaptive, both),
        *each("convolution backward", "convolution_backward.out", convolution, both),
        *each("embedding backward", "embedding_dense_backward.out", embedding, both),
    ]


def _matrices() -> list[Row]:
    def side(n: int) -> int:
        return max(8, int(n**0.5) // 4)

    def definite(d: torch.dtype, n: int) -> torch.Tensor:
        a = values((side(n), side(n)), d)
        return a @ a.T + side(n) * torch.eye(side(n), dtype=d)

    def right(d: torch.dtype, n: int) -> torch.Tensor:
        return values((side(n), 16), d)

    both = (f32, f64)
    return [
        *each(
            "baddbmm",
            "baddbmm.out",
            lambda d: lambda n: tuple(values((4, side(n), side(n)), d) for _ in range(3)),
        ),
        *each("linear", "linear.out", lambda d: lambda n: (values((side(n),) * 2, d),) * 2),
        *each("det", "_linalg_det.result", lambda d: lambda n: (definite(d, n) / side(n),), both),
        *each("slogdet", "_linalg_slogdet.sign", lambda d: lambda n: (definite(d, n),), both),
        *each("solve", "_linalg_solve_ex.result", lambda d: lambda n: (definite(d, n), right(d, n)), both),
        *each(
            "cholesky_solve",
            "cholesky_solve.out",
            lambda d: lambda n: (right(d, n), definite(d, n)),
            both,
        ),
        *each("cholesky_inverse", "cholesky_inverse.out", lambda d: lambda n: (definite(d, n),), both),
        *each(
            "matrix_exp",
            "linalg_matrix_exp.out",
            lambda d: lambda n: (unit((side(n),) * 2, d) / 8,),
            both,
        ),
        *each(
            "triangular_solve",
            "triangular_solve.X",
            lambda d: lambda n: (right(d, n), definite(d, n)),
            both,
        ),
        # Vectors of either sign are right, so that nothing is compared.
        *[
            Row(
                f"{name} {d}".replace("torch.float", "f"),
                overload,
                lambda n, d=d: (definite(d, n),),
                is_compared=False,
            )
            for name, overload in (("eigh", "_linalg_eigh.eigenvalues"), ("svd", "_linalg_svd.U"))
            for d in both
        ],
    ]


ROWS = [
    *_elementwise(),
    *_statistics(),
    *_creation(),
    *_movement(),
    *_layers(),
    *_gradients(),
    *_matrices(),
]
