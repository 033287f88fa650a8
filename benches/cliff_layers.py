"""Rows of `cliff_rows.py` for what layers do: norms, pools, resampling, products, convolutions, Fourier."""

from __future__ import annotations

from typing import Any

import torch
from cliff_arguments import FLOATS, INTEGERS, each, f32, unit
from operator_rows import Arguments, Row, f64, image, rows_of, square, values


def _norms() -> list[Row]:
    def layer(d: torch.dtype) -> Arguments:
        return lambda n: (values(rows_of(n, 384), d), [384], values((384,), d), values((384,), d), 1e-5)

    def group(d: torch.dtype) -> Arguments:
        def make(n: int) -> tuple[Any, ...]:
            x = values(image(n, 32), d)
            return x, values((32,), d), values((32,), d), 1, 32, x.shape[2] * x.shape[3], 8, 1e-5

        return make

    def batch(d: torch.dtype) -> Arguments:
        def make(n: int) -> tuple[Any, ...]:
            one = values((32,), d)
            return values(image(n, 32), d), one, one, one, one.abs() + 1, 0.1, 1e-5

        return make

    return [
        *each("layer_norm", "native_layer_norm.out", layer),
        *each("group_norm", "native_group_norm.out", group),
        *each("batch_norm", "_native_batch_norm_legit_no_training.out", batch),
    ]


def _images() -> list[Row]:
    def doubled(d: torch.dtype, rank: int, *more: Any) -> Arguments:
        def make(n: int) -> tuple[Any, ...]:
            side = max(4, int((n / 2**rank / 8) ** (1 / rank)))
            return values((1, 8, *[side] * rank), d), [2 * side] * rank, *more

        return make

    def cube(n: int) -> tuple[int, ...]:
        side = max(4, int((n / 8) ** (1 / 3)))
        return 1, 8, side, side, side

    def grid(d: torch.dtype, mode: int) -> Arguments:
        return lambda n: (values(image(n, 8), d), unit((1, *image(n, 8)[2:], 2), d), mode, 0, False)

    return [
        *each("nearest1d", "upsample_nearest1d.out", lambda d: doubled(d, 1, 2.0)),
        *each("nearest2d", "upsample_nearest2d.out", lambda d: doubled(d, 2, 2.0, 2.0)),
        *each("nearest3d", "upsample_nearest3d.out", lambda d: doubled(d, 3, 2.0, 2.0, 2.0)),
        *each("linear1d", "upsample_linear1d.out", lambda d: doubled(d, 1, False, 2.0)),
        *each("bilinear2d", "upsample_bilinear2d.out", lambda d: doubled(d, 2, False, 2.0, 2.0)),
        *each("trilinear3d", "upsample_trilinear3d.out", lambda d: doubled(d, 3, False, 2.0, 2.0, 2.0)),
        *each("bicubic2d", "upsample_bicubic2d.out", lambda d: doubled(d, 2, False, 2.0, 2.0)),
        *each(
            "bilinear aa", "_upsample_bilinear2d_aa.out", lambda d: doubled(d, 2, False, 2.0, 2.0), (f32, f64)
        ),
        *each("grid_sampler bilinear", "grid_sampler_2d.out", lambda d: grid(d, 0)),
        *each("grid_sampler nearest", "grid_sampler_2d.out", lambda d: grid(d, 1), (f32, f64)),
        *each("grid_sampler bicubic", "grid_sampler_2d.out", lambda d: grid(d, 2), (f32, f64)),
        *each(
            "max_pool2d",
            "max_pool2d_with_indices.out",
            lambda d: lambda n: (values(image(n, 16), d), [3, 3], [2, 2], [1, 1]),
        ),
        *each(
            "max_pool3d", "max_pool3d_with_indices.out", lambda d: lambda n: (values(cube(n), d), [2, 2, 2])
        ),
        *each(
            "avg_pool2d",
            "avg_pool2d.out",
            lambda d: lambda n: (values(image(n, 16), d), [3, 3], [2, 2], [1, 1]),
        ),
        *each(
            "avg_pool3d", "avg_pool3d.out", lambda d: lambda n: (values(cube(n), d), [2, 2, 2]), (f32, f64)
        ),
        *each(
            "adaptive_avg_pool2d",
            "_adaptive_avg_pool2d.out",
            lambda d: lambda n: (values(image(n, 16), d), [7, 7]),
        ),
        *each(
            "adaptive_max_pool2d",
            "adaptive_max_pool2d.out",
            lambda d: lambda n: (values(image(n, 16), d), [7, 7]),
        ),
    ]


def _products() -> list[Row]:
    def side(n: int) -> int:
        return max(8, int(n**0.5) // 4)

    def convolution(
        d: torch.dtype, rank: int, groups: int = 1, is_transposed: bool = False, channels: int = 16
    ) -> Arguments:
        def make(n: int) -> tuple[Any, ...]:
            extent = max(8, int((n / 4 / channels) ** (1 / rank)))
            x = values((1, channels, *[extent] * rank), d)
            w = values((channels, channels // groups, *[3] * rank), d)
            return (
                x,
                w,
                values((channels,), d),
                [1] * rank,
                [1] * rank,
                [1] * rank,
                is_transposed,
                [0] * rank,
                groups,
            )

        return make

    wide = (*FLOATS, *INTEGERS)
    return [
        *each(
            "mm",
            "mm.out",
            lambda d: lambda n: (values((side(n), side(n)), d), values((side(n), side(n)), d)),
            wide,
        ),
        *each("bmm", "bmm.out", lambda d: lambda n: (values((4, side(n) // 2, side(n) // 2), d),) * 2, wide),
        *each(
            "addmm",
            "addmm.out",
            lambda d: lambda n: (values((side(n),), d), *[values((side(n), side(n)), d)] * 2),
            wide,
        ),
        *each("mv", "mv.out", lambda d: lambda n: (values(square(n), d), values((square(n)[1],), d)), wide),
        *each("conv1d", "convolution.out", lambda d: convolution(d, 1)),
        *each("conv2d", "convolution.out", lambda d: convolution(d, 2)),
        *each("conv3d", "convolution.out", lambda d: convolution(d, 3)),
        *each("conv1d depthwise", "convolution.out", lambda d: convolution(d, 1, 16)),
        *each("conv2d depthwise", "convolution.out", lambda d: convolution(d, 2, 16)),
        *each("conv2d grouped", "convolution.out", lambda d: convolution(d, 2, 4)),
        *each("conv1d transposed", "convolution.out", lambda d: convolution(d, 1, 1, True)),
        *each("conv2d transposed", "convolution.out", lambda d: convolution(d, 2, 1, True)),
        *each("conv3d transposed", "convolution.out", lambda d: convolution(d, 3, 1, True), (f32, f64)),
        *each(
            "cdist 2",
            "_cdist_forward.out",
            lambda d: lambda n: (values((side(n), 32), d), values((side(n), 32), d), 2.0, None),
            (f32, f64),
        ),
        *each(
            "cdist 1",
            "_cdist_forward.out",
            lambda d: lambda n: (values((side(n), 32), d), values((side(n), 32), d), 1.0, None),
            (f32, f64),
        ),
        *each("pdist", "_pdist_forward.out", lambda d: lambda n: (values((side(n), 32), d), 2.0), (f32, f64)),
        *each(
            "solve_triangular",
            "linalg_solve_triangular.out",
            lambda d: (
                lambda n: (
                    (values((side(n) // 2,) * 2, d).tril() + 30 * torch.eye(side(n) // 2, dtype=d)),
                    values((side(n) // 2, 16), d),
                )
            ),
            (f32, f64),
            (("upper", False),),
        ),
        *each(
            "cholesky",
            "linalg_cholesky_ex.L",
            lambda d: (
                lambda n: ((lambda a: a @ a.T + torch.eye(len(a), dtype=d))(values((side(n) // 2,) * 2, d)),)
            ),
            (f32, f64),
        ),
        *each(
            "inverse",
            "linalg_inv_ex.inverse",
            lambda d: lambda n: (values((side(n) // 4,) * 2, d),),
            (f32, f64),
        ),
        *each("qr", "linalg_qr.out", lambda d: lambda n: (values((side(n) // 4,) * 2, d),), (f32, f64)),
        # Not eigh and svd: their vectors have either sign, so that results cannot be compared.
        *each("lu", "linalg_lu.out", lambda d: lambda n: (values((side(n) // 2,) * 2, d),), (f32, f64)),
        Row("fft r2c rows of 512", "_fft_r2c.out", lambda n: (values(rows_of(n, 512)), [1], 0, True)),
        Row("fft r2c rows of 400", "_fft_r2c.out", lambda n: (values(rows_of(n, 400)), [1], 0, True)),
        Row("fft r2c 2d", "_fft_r2c.out", lambda n: (values(square(n)), [0, 1], 0, True)),
        Row(
            "fft c2c rows of 512",
            "_fft_c2c.out",
            lambda n: (torch.complex(*[values(rows_of(n, 512))] * 2), [1], 0, True),
        ),
        Row(
            "fft c2c rows of 509",
            "_fft_c2c.out",
            lambda n: (torch.complex(*[values(rows_of(n, 509))] * 2), [1], 0, True),
        ),
        Row(
            "fft c2r rows of 512",
            "_fft_c2r.out",
            lambda n: (torch.complex(*[values(rows_of(n, 257))] * 2), [1], 2, 512),
        ),
    ]


ROWS = [*_norms(), *_images(), *_products()]
