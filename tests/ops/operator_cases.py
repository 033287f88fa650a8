"""The table of operator calls that every runtime is compared on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from tests.ops.bag_cases import every_bag
from tests.ops.complex_cases import every_complex
from tests.ops.corner_cases import every_corner
from tests.ops.creation_cases import every_creation
from tests.ops.gradient_cases import every_gradient
from tests.ops.image_cases import pools, resampled
from tests.ops.linear_algebra_cases import every_matrix
from tests.ops.movement_cases import every_movement
from tests.ops.operator_case import OperatorCase as Case
from tests.ops.quantized_cases import every_quantised
from tests.ops.sample_tensors import ALL, FLOATS, INF, INTEGERS, NAN, channels_last, special, values
from tests.ops.shape_check_cases import every_shape_check
from tests.ops.statistic_cases import every_statistic
from tests.ops.vision_cases import every_vision

# Functions of one tensor whose result is a float tensor.
_FLOAT_FUNCTIONS = (
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "erf",
    "sigmoid",
)
# Functions that keep the element type or give bool.
_FUNCTIONS = (
    "abs",
    "neg",
    "sign",
    "floor",
    "ceil",
    "trunc",
    "round",
    "frac",
    "square",
    "isnan",
    "isinf",
    "logical_not",
    "bitwise_not",
    "relu",
)
# Functions with settings, or for float tensors only.
_ACTIVATIONS = (
    "silu",
    "mish",
    "hardsigmoid",
    "hardswish",
    "gelu",
    "elu",
    "softplus",
    "leaky_relu",
    "hardtanh",
    "logit",
)


def unary() -> Iterator[Case]:
    """Functions of one tensor."""
    for op in _FLOAT_FUNCTIONS:
        for dtype in ALL:
            yield Case(op, "out", (values((3, 5), dtype),))
        yield Case(op, "out", (special(),), note=" special")
        yield Case(op, "out", (special(torch.float64),), note=" special")
    for op in _FUNCTIONS:
        for dtype in ALL:
            yield Case(op, "out", (values((3, 5), dtype),))
        yield Case(op, "out", (special(),), note=" special")
    for op in _ACTIVATIONS:
        for dtype in [*FLOATS, torch.int32]:
            yield Case(op, "out", (values((3, 5), dtype),))
        # Eager's vectorised float32 gelu makes NaN of infinity.
        yield Case(op, "out", (special(torch.float64 if op == "gelu" else torch.float32),), note=" special")
    yield Case("gelu", "out", (special(),), {"approximate": "tanh"})
    yield Case("gelu", "out", (values((300,), torch.float64),), {"approximate": "tanh"})
    yield Case("elu", "out", (values((7,)), 1.5, 2, 0.5))
    yield Case("softplus", "out", (values((7,)), 2, 1))
    yield Case("logit", "out", (values((7,)), 0.1))
    for op in ["exp", "abs", "relu", "logical_not"]:
        yield Case(op, "out", (values(()),))
        yield Case(op, "out", (values((0, 3)),))
        yield Case(op, "out", (channels_last((2, 3, 4, 5)),))
        yield Case(op, "out", (values((70, 70, 7)),))


def binary() -> Iterator[Case]:
    """Functions of two tensors or a tensor and a number."""
    pairs = (
        "mul div floor_divide remainder fmod maximum minimum eq ne lt le gt ge "
        "logical_and logical_or logical_xor atan2"
    )
    overloads = dict.fromkeys(pairs.split(), "out") | dict.fromkeys(
        ["eq", "ne", "lt", "le", "gt", "ge"], "Tensor_out"
    )
    overloads |= {
        "remainder": "Tensor_out",
        "fmod": "Tensor_out",
        "add": "out",
        "sub": "out",
        "pow": "Tensor_Tensor_out",
    }
    overloads |= dict.fromkeys(
        ["bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift"],
        "Tensor_out",
    )
    for op, overload in overloads.items():
        for a in ALL:
            for b in [a, torch.float32, torch.int64, torch.uint8, torch.bool]:
                yield Case(op, overload, (values((2, 3), a, 1), _no_zero(values((2, 3), b, 2))))
        yield Case(op, overload, (special().unsqueeze(1), special()), note=" special")
        yield Case(op, overload, (values((2, 1, 3)), values((4, 1), seed=5)))
        yield Case(op, overload, (values((3,)), values(())))
        yield Case(op, overload, (values((3,), torch.float16), values((), torch.float32)))
        yield Case(op, overload, (values((3,), torch.int8), _no_zero(values((), torch.int64))))
        yield Case(op, overload, (values((3,), torch.int8), values((), torch.float64)))
        yield Case(op, overload, (values((0, 3)), values((1, 3))))
        yield Case(op, overload, (channels_last((2, 3, 4, 5)), values((3, 1, 1))))
        yield Case(op, overload, (channels_last((2, 3, 4, 5)), channels_last((2, 3, 4, 5), seed=3)))
        yield Case(op, overload, (values((2,)), values((3,))), note=" misfit")
    for op in ["div", "floor_divide", "remainder", "fmod"]:
        zero = torch.zeros(2, 3, dtype=torch.int32)
        yield Case(op, overloads[op], (values((2, 3), torch.int32), zero), note=" by zero")


def _no_zero(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.dtype == torch.bool else torch.where(tensor == 0, torch.ones_like(tensor), tensor)


def numbers() -> Iterator[Case]:
    """A tensor with a number."""
    overloads = dict.fromkeys(
        ["add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge", "remainder", "fmod"], "Scalar_out"
    )
    overloads |= dict.fromkeys(["bitwise_and", "bitwise_or", "bitwise_xor"], "Scalar_out") | {
        "pow": "Tensor_Scalar_out"
    }
    for op, overload in overloads.items():
        for dtype in ALL:
            for number in [2, 2.5, -3, True]:
                yield Case(op, overload, (values((2, 3), dtype), number))
    for mode in ["floor", "trunc", None]:
        for dtype in [*FLOATS, *INTEGERS]:
            yield Case("div", "Scalar_mode_out", (values((9,), dtype), 3), {"rounding_mode": mode})
            yield Case(
                "div",
                "out_mode",
                (values((9,), dtype), values((9,), dtype, 7).abs() + 1),
                {"rounding_mode": mode},
            )
        yield Case("div", "out_mode", (special().unsqueeze(1), special()), {"rounding_mode": mode})
    for dtype in [*FLOATS, *INTEGERS]:
        yield Case("add", "out", (values((3,), dtype), values((3,), dtype, 4)), {"alpha": 3})
        yield Case("sub", "out", (values((3,), dtype), values((3,), dtype, 4)), {"alpha": 2.5})
        yield Case("rsub", "Scalar_out", (values((3,), dtype), 2, 3))
        yield Case("clamp", "out", (values((9,), dtype), 1, 4))
        yield Case("clamp", "out", (values((9,), dtype), None, 2.5))
        yield Case("clamp", "Tensor_out", (values((9,), dtype), values((), dtype, 2), values((9,), dtype, 3)))
        yield Case("pow", "Scalar_out", (2, values((4,), dtype, 3).abs()))
    for exponent in [0.5, -0.5, 2, 3, -1, 0, 1.7]:
        yield Case("pow", "Tensor_Scalar_out", (special(), exponent))
    yield Case("clamp", "out", (special(), NAN, 1.0))
    yield Case("clamp", "out", (special(), 2.0, 1.0))
    for dtype in ALL:
        mask = values((2, 3), torch.bool, 9)
        yield Case("where", "self_out", (mask, values((2, 3), dtype), values((3,), torch.float32, 2)))
        yield Case("where", "self_out", (mask, values((2, 3), dtype), values((), dtype, 2)))
        yield Case("masked_fill", "Scalar_out", (values((2, 3), dtype), mask, 1))
        yield Case("masked_fill", "Tensor_out", (values((2, 3), dtype), mask[0], values((), dtype, 3)))
    yield Case("masked_fill", "Scalar_out", (values((2, 3)), values((2, 3), torch.bool), -INF))
    yield Case("addcmul", "out", (values((3,)), values((3,), seed=1), values((2, 3), seed=2)), {"value": 0.5})
    yield Case(
        "addcdiv",
        "out",
        (values((3,)), values((3,), seed=1), values((2, 3), seed=2).abs() + 1),
        {"value": 0.5},
    )
    yield Case("lerp", "Scalar_out", (values((3,)), values((3,), seed=1), 0.7))


def copies() -> Iterator[Case]:
    """Copies that keep or rearrange elements."""
    for dtype in [*ALL, torch.complex64, torch.uint16]:
        x = (
            values((2, 3, 4), torch.int64).to(dtype)
            if dtype in (torch.complex64, torch.uint16)
            else values((2, 3, 4), dtype)
        )
        yield Case("permute_copy", "out", (x, [2, 0, 1]))
        yield Case("clone", "out", (x,))
        if dtype != torch.uint16:  # eager has no kernel
            yield Case("flip", "out", (x, [0, -1]))
        yield Case("slice_copy", "Tensor_out", (x, 1, -2, None, 2))
        yield Case("view_copy", "out", (x, [4, -1]))
    for source in [channels_last((2, 3, 4, 5)), values((2, 3, 4, 5)), values((2, 0, 4, 5))]:
        for dims in [[0, 2, 3, 1], [3, 2, 1, 0], [0, 1, 2, 3], [1, 0, 3, 2]]:
            yield Case("permute_copy", "out", (source, dims))
        yield Case("transpose_copy", "int_out", (source, 1, -1))
        yield Case("expand_copy", "out", (source, [3, 2, -1, 4, 5]))
        yield Case("unsqueeze_copy", "out", (source, -2))
        yield Case("select_copy", "int_out", (source, 2, -1))
        yield Case("slice_copy", "Tensor_out", (source, 3, 1, 100, 3))
        yield Case("slice_copy", "Tensor_out", (source, 0, 5, 9))
        yield Case("narrow_copy", "out", (source, 2, 1, 2))
        yield Case("split_copy", "Tensor_out", (source, 3, 3))
        yield Case("split_with_sizes_copy", "out", (source, [1, 3], 2))
        yield Case("unbind_copy", "int_out", (source, 2))
        yield Case("repeat", "out", (source, [2, 1, 2, 1, 3]))
        yield Case("roll", "out", (source, [1, -2], [2, 3]))
        yield Case("cat", "out", ([source, source, values(tuple(source.shape), seed=4)], 0))
        yield Case("stack", "out", ([source, source], 2))
        yield Case("diagonal_copy", "out", (source, 1, 2, 3))
        yield Case("unfold_copy", "out", (source, 3, 2, 2))
        yield Case("constant_pad_nd", "out", (source, [1, -1, 0, 2], 1.5))
        yield Case("select_scatter", "out", (values((2, 3, 4)), values((2, 4), seed=3), 1, 1))
        yield Case("slice_scatter", "out", (values((2, 3, 4)), values((2, 3, 2), seed=3), 2, 0, None, 2))
    yield Case("constant_pad_nd", "out", (values((2, 3), torch.bool), [1, 2], 0.5))
    yield Case("cat", "out", ([values((2, 3)), values((2, 1), torch.int64)], 1))
    yield Case("cat", "out", ([values((0,)), values((2, 1))], 1))
    yield Case("expand_copy", "out", (values(()), [2, 3]))
    yield Case("t_copy", "out", (values((2, 3)),))
    yield Case("t_copy", "out", (values((3,)),))
    yield Case("squeeze_copy", "dim_out", (values((2, 1, 3)), 1))
    yield Case("squeeze_copy", "dims_out", (values((1, 2, 1)), [0, 1, 2]))
    yield Case("view_copy", "out", (values(()), [1, 1]))
    yield Case("view_copy", "out", (values((2, 3)), [4]), note=" misfit")
    yield Case("select_copy", "int_out", (values((2, 3)), 0, 2), note=" outside")
    yield Case("as_strided_copy", "out", (values((4, 4)), [2, 3], [4, 1], 1))
    yield Case("flip", "out", (values((0, 3)), [0]))
    yield Case("roll", "out", (values((2, 3)), [2], []))
    for a in ALL:
        for b in ALL:
            yield Case("copy", "out", (torch.zeros(2, 3, dtype=b), values((3,), a)))
            yield Case("_to_copy", "out", (values((2, 3), a),), {"dtype": b})
    yield Case("_to_copy", "out", (torch.tensor([300.7, -1.0, 0.3, NAN]),), {"dtype": torch.bool})
    yield Case("_to_copy", "out", (torch.tensor([300.7, -1.0, 0.3]),), {"dtype": torch.uint8})


def reductions() -> Iterator[Case]:
    """Sums, extremes and their kin."""
    shapes = [values((3, 4, 5)), channels_last((2, 3, 4, 5)), values((300, 3)), values((3, 300)), values(())]
    for x in shapes:
        dims: list[list[int]] = [[0], [-1], []] if x.dim() < 2 else [[0], [-1], [0, 1], []]
        for d in dims:
            for keep in [False, True]:
                yield Case("sum", "IntList_out", (x, d, keep))
                yield Case("mean", "out", (x, d, keep))
                yield Case("amax", "out", (x, d, keep))
                yield Case("amin", "out", (x, d, keep))
                yield Case("any", "dims_out", (x > 3, d, keep))
                yield Case("all", "dims_out", (x > -3, d, keep))
                yield Case("logsumexp", "out", (x, d, keep))
                if x.dim():
                    yield Case("var", "correction_out", (x, d), {"correction": 1, "keepdim": keep})
                    yield Case("std", "correction_out", (x, d), {"correction": 0, "keepdim": keep})
                    yield Case("var_mean", "correction_out", (x, d), {"correction": 1, "keepdim": keep})
        for keep in [False, True]:
            for op in ["max", "min"]:
                yield Case(op, f"dim_{op}", (x, -1, keep))
            for op in ["argmax", "argmin"]:
                yield Case(op, "out", (x, -1, keep))
                yield Case(op, "out", (x, None, keep))
            yield Case("prod", "int_out", (x / 4, 0, keep))
        for op in ["cumsum", "cumprod"]:
            yield Case(op, "out", (x / 4, 0))
            yield Case(op, "out", (x / 4, -1))
        for order in [0, 1, 2, 3.5, INF, -INF]:
            yield Case("linalg_vector_norm", "out", (x, order, [0]))
        for op in ["_softmax", "_log_softmax"]:
            yield Case(op, "out", (x, 0, False))
            yield Case(op, "out", (x, -1, False))


def reductions_of_every_dtype() -> Iterator[Case]:
    """The same for every element type, and for what is special or empty."""
    for dtype in ALL:
        x = values((4, 6), dtype)
        yield Case("sum", "IntList_out", (x, [0], False))
        yield Case("sum", "IntList_out", (x, None, False), {"dtype": torch.float32})
        yield Case("mean", "out", (x, [1], False))
        yield Case("mean", "out", (x, [1], False), {"dtype": torch.float64})
        yield Case("amax", "out", (x, [0], True))
        yield Case("max", "dim_max", (x, 0, False))
        yield Case("max", "unary_out", (x,))
        yield Case("min", "unary_out", (x,))
        yield Case("argmin", "out", (x, 0, False))
        yield Case("any", "out", (x, 0, False))
        yield Case("all", "out", (x, 1, True))
        yield Case("any", "all_out", (x,))
        yield Case("prod", "out", (x,))
        yield Case("cumsum", "out", (x, 1))
        yield Case("_softmax", "out", (x, 1, False))
        yield Case("var", "correction_out", (x, [0]), {"correction": 1, "keepdim": False})
    for x in [special(), torch.tensor([NAN, 1.0, NAN]), torch.full((3,), -INF)]:
        for op, overload in [("amax", "out"), ("amin", "out"), ("sum", "IntList_out"), ("logsumexp", "out")]:
            yield Case(op, overload, (x, [0]), note=" special")
        yield Case("argmax", "out", (x, 0), note=" special")
        yield Case("_softmax", "out", (x, 0, False), note=" special")
    for x in [values((0, 3)), values((3, 0))]:
        for op, overload in [("sum", "IntList_out"), ("mean", "out"), ("amax", "out"), ("any", "dims_out")]:
            yield Case(op, overload, (x, [0]), note=" empty")
        yield Case("argmax", "out", (x, 0), note=" empty")
        yield Case("prod", "int_out", (x, 0), note=" empty")


def networks() -> Iterator[Case]:
    """Matrix products, and one of each kind of layer in every element type."""
    for dtype in FLOATS:
        yield Case("mm", "out", (values((5, 7), dtype), values((7, 3), dtype, 1)))
        yield Case("bmm", "out", (values((2, 5, 7), dtype), values((2, 7, 3), dtype, 1)))
        yield Case("addmm", "out", (values((3,), dtype), values((5, 7), dtype), values((7, 3), dtype, 1)))
        yield Case("linear", "out", (values((2, 5, 7), dtype), values((3, 7), dtype, 1), values((3,), dtype)))
        yield Case("convolution", "out", _convolution((2, 4, 9), (6, 4, 3), dtype, stride=[2], padding=[1]))
        yield Case(
            "native_layer_norm", "out", (values((2, 3, 5), dtype), [5], values((5,), dtype), None, 1e-5)
        )
        yield Case("_adaptive_avg_pool2d", "out", (values((2, 3, 7, 5), dtype), [3, 2]))
        yield Case("embedding", "out", (values((5, 3), dtype), torch.tensor([[0, 4], [2, 2]])))
    for dtype in INTEGERS:
        yield Case("mm", "out", (values((5, 7), dtype), values((7, 3), dtype, 1)))
    for m, k, n in [(1, 300, 300), (33, 65, 270), (4, 0, 3), (0, 3, 4)]:
        yield Case("mm", "out", (values((m, k)), values((k, n), seed=1)))
        yield Case("linear", "out", (values((m, k)), values((n, k), seed=1)))
        yield Case(
            "baddbmm", "out", (values((n,)), values((2, m, k)), values((2, k, n))), {"beta": 0.5, "alpha": 2}
        )
    yield Case("addmm", "out", (values((5, 1)), values((5, 7)), values((7, 3))), {"beta": 0, "alpha": 2})
    yield Case("mm", "out", (values((5, 7)), values((6, 3))), note=" misfit")
    yield Case("mv", "out", (values((5, 7)), values((7,))))
    yield Case("dot", "out", (values((7,)), values((7,), seed=3)))


def convolutions() -> Iterator[Case]:
    """Convolutions of one to three dimensions, forward and transposed."""
    geometries: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
        ((2, 4, 9, 8), (6, 4, 3, 3), {}),
        ((2, 4, 9, 8), (6, 2, 3, 2), {"stride": [2, 1], "padding": [1, 0], "dilation": [1, 2], "groups": 2}),
        ((1, 4, 9, 300), (4, 1, 3, 3), {"padding": [1, 1], "groups": 4}),
        ((1, 4, 5, 5), (8, 4, 1, 1), {"stride": [2, 2]}),
        ((1, 2, 5, 6, 7), (3, 2, 2, 3, 2), {"padding": [1, 0, 1]}),
        ((0, 4, 9, 8), (6, 4, 3, 3), {}),
        (
            (2, 4, 5, 6),
            (4, 3, 3, 3),
            {"transposed": True, "stride": [2, 3], "padding": [1, 1], "output_padding": [1, 2]},
        ),
        ((2, 4, 5, 6), (4, 3, 3, 2), {"transposed": True, "dilation": [2, 1], "groups": 2}),
        ((1, 4, 7), (4, 5, 4), {"transposed": True, "stride": [3]}),
    ]
    for x, w, options in geometries:
        yield Case("convolution", "out", _convolution(x, w, torch.float32, **options))
    last = _convolution((2, 4, 9, 8), (6, 4, 3, 3), torch.float32, padding=[1, 1])
    yield Case("convolution", "out", (channels_last((2, 4, 9, 8)), *last[1:]))


def norms_and_pools() -> Iterator[Case]:
    """Normalisation and pooling, in both memory orders."""
    for x4 in [values((2, 6, 4, 5)), channels_last((2, 6, 4, 5))]:
        w, b = values((6,), seed=1), values((6,), seed=2)
        var = values((6,), seed=4).abs() + 0.5
        yield Case(
            "_native_batch_norm_legit_no_training",
            "out",
            (x4, w, b, values((6,), seed=3), var, 0.1, 1e-5),
            outputs=1,
        )
        yield Case("_native_batch_norm_legit", "no_stats_out", (x4, w, b, True, 0.1, 1e-5))
        yield Case("native_group_norm", "out", (x4.contiguous(), w, b, 2, 6, 20, 3, 1e-5))
        yield Case("native_group_norm", "out", (x4.contiguous(), None, None, 2, 6, 20, 2, 1e-5))
        for options5 in [
            ([2, 2],),
            ([3, 2], [1, 2], [1, 1]),
            ([2, 2], [2, 2], [0, 0], [1, 2], True),
            ([3, 3], [2, 2], [1, 1], [1, 1], True),
        ]:
            yield Case("max_pool2d_with_indices", "out", (x4, *options5))
        for average in [
            ([2, 2],),
            ([3, 2], [1, 2], [1, 1]),
            ([3, 3], [2, 2], [1, 1], True),
            ([3, 3], [2, 2], [1, 1], True, False),
            ([2, 2], [], [0, 0], False, True, 3),
        ]:
            yield Case("avg_pool2d", "out", (x4, *average))
        # Rounded up, one window may be larger than its input.
        yield Case("avg_pool2d", "out", (x4, [9, 7], [9, 7], [0, 0], True))
        yield Case("max_pool2d_with_indices", "out", (x4, [9, 7], [9, 7], [0, 0], [1, 1], True))
        yield Case("_adaptive_avg_pool2d", "out", (x4, [1, 1]))
    yield Case("native_layer_norm", "out", (values((2, 3, 5)), [3, 5], values((3, 5)), values((3, 5)), 1e-5))
    yield Case("native_layer_norm", "out", (values((4, 700)), [700], None, None, 1e-5))
    yield Case("max_pool2d_with_indices", "out", (values((3, 8, 8), torch.int32), [2, 2]))


def _convolution(
    x: tuple[int, ...], w: tuple[int, ...], dtype: torch.dtype, **options: Any
) -> tuple[Any, ...]:
    n = len(x) - 2
    o = {
        "stride": [1] * n,
        "padding": [0] * n,
        "dilation": [1] * n,
        "transposed": False,
        "output_padding": [0] * n,
    }
    o |= {"groups": 1} | options
    outputs = w[1] * o["groups"] if o["transposed"] else w[0]  # type: ignore[operator]
    return (values(x, dtype), values(w, dtype, 1), values((outputs,), dtype, 2), *o.values())


def indexing() -> Iterator[Case]:
    """Positions that are data."""
    rows = torch.tensor([2, 0, 2])
    for dtype in ALL:
        x = values((3, 4), dtype)
        yield Case("index_select", "out", (x, 0, rows))
        yield Case("gather", "out", (x, 1, torch.tensor([[0, 3], [1, 1]])))
        yield Case("index", "Tensor_out", (x, [rows, torch.tensor([-1, 0, 1])]))
        yield Case("index_put", "out", (x, [rows], values((3, 4), dtype, 5)))
        yield Case("scatter", "src_out", (x, 0, torch.tensor([[2, 0, 1]]), values((1, 3), dtype, 6)))
        yield Case("scatter", "value_out", (x, 1, torch.tensor([[3], [0]]), 1))
        yield Case(
            "scatter_add", "out", (x, 0, torch.tensor([[2, 0, 1], [2, 0, 1]]), values((2, 3), dtype, 6))
        )
    x3 = values((3, 4, 5))
    yield Case("index", "Tensor_out", (x3, [None, torch.tensor([[0, 3], [1, 1]])]))
    yield Case("index", "Tensor_out", (x3, [rows, None, torch.tensor([0, 1, 4])]))
    yield Case("index", "Tensor_out", (x3, [None, torch.tensor([0, 3]), torch.tensor([[4], [0]])]))
    yield Case("index", "Tensor_out", (x3, [torch.tensor(1)]))
    yield Case("index", "Tensor_out", (x3, [torch.empty(0, dtype=torch.int64)]))
    yield Case("index", "Tensor_out", (channels_last((2, 3, 4, 5)), [None, None, torch.tensor([1, 3])]))
    yield Case("index_put", "out", (x3, [rows], torch.tensor(1.5), True))
    yield Case("index_put", "out", (x3, [None, rows], values((3, 3, 5), seed=2), True))
    yield Case("index_put", "out", (x3, [rows, None, torch.tensor([0, 1, 4])], values((3, 4), seed=2)))
    for reduce in ["sum", "prod", "amax", "amin"]:
        yield Case(
            "scatter_reduce",
            "two_out",
            (x3[0].clone(), 0, torch.tensor([[2, 0, 1], [2, 0, 1]]), values((2, 3)), reduce),
        )
    yield from _scatter_reductions()
    for op, overload, args in [
        ("index_select", "out", (0, torch.tensor([3]))),
        ("index_select", "out", (0, torch.tensor([-1]))),
        ("index", "Tensor_out", ([torch.tensor([3])],)),
        ("gather", "out", (0, torch.tensor([[3]]))),
        ("scatter", "value_out", (0, torch.tensor([[-1]]), 1)),
    ]:
        yield Case(op, overload, (values((3, 4)), *args), note=" outside")
    for dtype in ALL:
        yield Case("full_like", "out", (values((2, 3), dtype), 1))
        yield Case("fill", "Scalar_out", (values((2, 3), dtype), 1))
        yield Case("fill", "Tensor_out", (values((2, 3), dtype), torch.tensor(2.0)))
        yield Case("tril", "out", (values((2, 3, 4), dtype), 1))
        yield Case("triu", "out", (values((4, 3), dtype), -1))


def _scatter_reductions() -> Iterator[Case]:
    """Every reduction, with the input and without it, in both directions."""
    for reduce in ["sum", "prod", "mean", "amax", "amin"]:
        for include in [True, False]:
            for dtype in [torch.float32, torch.float64, torch.int64, torch.int8]:
                index = torch.tensor([[2, 0, 2], [2, 0, 1], [2, 2, 1]])
                args = (values((3, 4), dtype), 0, index, values((3, 4), dtype, 5), reduce)
                yield Case("scatter_reduce", "two_out", args, {"include_self": include})
            args = (values((2, 5)), 1, torch.tensor([[4, 4, 4], [0, 1, 0]]), values((2, 3), seed=2), reduce)
            yield Case("scatter_reduce", "two_out", args, {"include_self": include})
            args3 = (values((2, 3, 4)), 1, torch.zeros(2, 3, 4, dtype=torch.int64), values((2, 3, 4), seed=2))
            yield Case("scatter_reduce", "two_out", (*args3, reduce), {"include_self": include})


def distances_and_sampling() -> Iterator[Case]:
    """Distances of rows, and images read at positions that are data."""
    for p in [0.0, 1.0, 2.0, 3.5, INF]:
        for dtype in [torch.float32, torch.float64]:
            yield Case("_cdist_forward", "out", (values((5, 6), dtype), values((4, 6), dtype, 2), p, None))
            yield Case("_pdist_forward", "out", (values((5, 6), dtype), p))
        yield Case("_cdist_forward", "out", (values((2, 1, 3, 4)), values((3, 5, 4), seed=1), p, None))
    yield Case("_cdist_forward", "out", (values((0, 6)), values((4, 6)), 2.0, None))
    yield Case("_cdist_forward", "out", (values((2, 6)), values((4, 5)), 2.0, None), note=" misfit")
    yield Case("_pdist_forward", "out", (values((1, 6)), 2.0))
    for x in [values((2, 3, 5, 4)), channels_last((2, 3, 5, 4)), values((2, 3, 5, 4), torch.float64)]:
        # Coordinates that float32 holds exactly, and that never lie between two pixels.
        grid = (values((2, 4, 3, 2), torch.float64, 7) / 2 + 1 / 64).to(x.dtype)
        for mode in [0, 1, 2]:
            for padding in [0, 1, 2]:
                for align in [False, True]:
                    yield Case("grid_sampler_2d", "out", (x, grid, mode, padding, align))
    yield Case(
        "grid_sampler_2d", "out", (values((2, 3, 5, 4)), values((1, 4, 3, 2)), 0, 0, True), note=" misfit"
    )


def remaining() -> Iterator[Case]:
    """Operators outside the families above."""
    for x in [values((2, 4, 6, 6)), channels_last((2, 4, 6, 6)), values((2, 4, 6, 6), torch.float64)]:
        yield Case("pixel_shuffle", "out", (x, 2))
        yield Case("pixel_unshuffle", "out", (x, 3))
        yield Case("reflection_pad2d", "out", (x, [1, 2, 3, 0]))
        yield Case("replication_pad2d", "out", (x, [1, 2, 3, 0]))
        yield Case("glu", "out", (x, 1))
        yield Case("glu", "out", (x, -1))
        for size in [[12, 12], [3, 4], [7, 11]]:
            yield Case("upsample_nearest2d", "vec_out", (x, size, None))
            yield Case("upsample_bilinear2d", "vec_out", (x, size, False, None))
            yield Case("upsample_bilinear2d", "vec_out", (x, size, True, None))
        yield Case("upsample_nearest2d", "vec_out", (x, None, [2.0, 1.5]))
        yield Case("upsample_bilinear2d", "vec_out", (x, None, False, [2.0, 1.5]))
    yield Case("reflection_pad1d", "out", (values((2, 3, 5)), [2, 1]))
    yield Case("reflection_pad3d", "out", (values((2, 3, 4, 4)), [1, 2, 1, 0, 2, 2]))
    yield Case("replication_pad1d", "out", (values((3, 5)), [2, 1]))
    yield Case("replication_pad3d", "out", (values((1, 2, 3, 4, 4)), [1, 2, 1, 0, 2, 2]))
    for dtype in [*FLOATS, *INTEGERS]:
        x = torch.randperm(24, generator=torch.Generator().manual_seed(1)).reshape(4, 6).to(dtype)
        yield Case("topk", "values", (x, 3, 1, True, True))
        yield Case("topk", "values", (x, 2, 0, False, True))
        yield Case("sort", "values", (x, 1, False))
        yield Case("sort", "values_stable", (x,), {"stable": True, "dim": 0, "descending": True})
        yield Case("nonzero", "out", (values((4, 6), dtype),), largest=(24, 2))
    yield Case("sort", "values_stable", (special(),), {"stable": True, "descending": True})
    yield Case("topk", "values", (torch.tensor([1.0, NAN, 3.0, 2.0]), 3))
    yield Case("nonzero", "out", (values((), torch.bool),), largest=(1, 0))
    yield Case("nonzero", "out", (values((0, 3)),), largest=(0, 2))
    yield Case("masked_select", "out", (values((2, 3)), values((2, 3), torch.bool, 3)), largest=(6,))
    yield Case("masked_scatter", "out", (values((2, 3)), values((2, 3), torch.bool, 3), values((6,), seed=4)))


def every_case() -> list[Case]:
    """The whole table."""
    tables = [
        unary,
        binary,
        numbers,
        copies,
        reductions,
        reductions_of_every_dtype,
        networks,
        convolutions,
        norms_and_pools,
        pools,
        resampled,
        indexing,
        distances_and_sampling,
        remaining,
        every_statistic,
        every_gradient,
        every_quantised,
        every_matrix,
        every_creation,
        every_corner,
        every_complex,
        every_bag,
        every_movement,
        every_shape_check,
        every_vision,
    ]
    return [case for table in tables for case in table()]
