"""Matrix products, convolutions, norms, pooling, resampling."""

from __future__ import annotations

import torch

from pteron_onnxruntime.graph import Graph, UnsupportedError
from pteron_onnxruntime.operators.table import Arguments, converted


@converted("aten.mm.default", "aten.bmm.default")
def _matmul(g: Graph, a: Arguments) -> str:
    other = "mat2"
    return str(g.op("MatMul", a.tensor("self"), a.tensor(other)))


@converted("aten.addmm.default")
def _addmm(g: Graph, a: Arguments) -> str:
    scales = {"alpha": float(a["alpha"]), "beta": float(a["beta"])}
    return str(g.op("Gemm", a.tensor("mat1"), a.tensor("mat2"), a.tensor("self"), **scales))


@converted("aten.linear.default")
def _linear(g: Graph, a: Arguments) -> str:
    result = g.op("MatMul", a.tensor("input"), g.op("Transpose", a.tensor("weight"), perm=[1, 0]))
    bias = a.optional("bias")
    return str(result if bias is None else g.op("Add", result, bias))


@converted("aten.convolution.default")
def _convolution(g: Graph, a: Arguments) -> str:
    rank = a.rank("input") - 2
    wide = [(v * rank if len(v) == 1 else v) for v in (a.ints(n) for n in ("stride", "padding", "dilation"))]
    strides, pads, dilations = wide
    bias = a.optional("bias")
    inputs = [a.tensor("input"), a.tensor("weight"), *([] if bias is None else [bias])]
    shared = {"strides": strides, "pads": pads * 2, "dilations": dilations, "group": int(a["groups"])}
    if a["transposed"]:
        more = a.ints("output_padding")
        more = more * rank if len(more) == 1 else more
        return str(g.op("ConvTranspose", *inputs, output_padding=more, **shared))
    return str(g.op("Conv", *inputs, **shared))


@converted("aten._softmax.default", "aten._log_softmax.default")
def _softmax(g: Graph, a: Arguments) -> str:
    if not a.rank():
        raise UnsupportedError("a number without dimensions")
    kind = "LogSoftmax" if "log" in str(a.node.target) else "Softmax"
    return str(g.op(kind, a.tensor("self", a.result.dtype), axis=a.dim()))


@converted("aten.native_layer_norm.default")
def _layer_norm(g: Graph, a: Arguments) -> list[str | None]:
    shape = a.ints("normalized_shape")
    dtype = a.result.dtype
    scale = a.optional("weight") or g.constant(torch.ones(shape), dtype)
    options = {"axis": -len(shape), "epsilon": float(a["eps"])}
    bias = a.optional("bias")
    result = g.op(
        "LayerNormalization", a.tensor("input"), scale, *([] if bias is None else [bias]), **options
    )
    return [result, None, None]


@converted("aten.native_group_norm.default")
def _group_norm(g: Graph, a: Arguments) -> list[str | None]:
    """By hand: the operator of opset 20 has a scale for each group, not for each channel."""
    value, groups, rank, dtype = a.tensor("input"), int(a["group"]), a.rank("input"), a.result.dtype
    split = g.op("Reshape", value, g.ints([0, groups, -1]))
    off = g.op("Sub", split, g.op("ReduceMean", split, g.ints([2]), keepdims=1))
    spread = g.op("ReduceMean", g.op("Mul", off, off), g.ints([2]), keepdims=1)
    root = g.op("Sqrt", g.op("Add", spread, g.constant(float(a["eps"]), dtype)))
    result = g.op("Reshape", g.op("Div", off, root), g.op("Shape", value))
    channels = g.ints([1, -1, *[1] * (rank - 2)])
    for name, kind in (("weight", "Mul"), ("bias", "Add")):
        given = a.optional(name)
        if given is not None:
            result = g.op(kind, result, g.op("Reshape", given, channels))
    return [result, None, None]


@converted("aten._native_batch_norm_legit_no_training.default")
def _batch_norm(g: Graph, a: Arguments) -> list[str | None]:
    channels, dtype = a.value("running_mean").shape[0], a.result.dtype
    scale = a.optional("weight") or g.constant(torch.ones(channels), dtype)
    bias = a.optional("bias") or g.constant(torch.zeros(channels), dtype)
    state = [a.tensor("running_mean"), a.tensor("running_var")]
    result = g.op("BatchNormalization", a.tensor("input"), scale, bias, *state, epsilon=float(a["eps"]))
    return [result, None, None]


def _window(a: Arguments, rank: int) -> dict[str, list[int]]:
    def wide(values: list[int]) -> list[int]:
        return values * rank if len(values) == 1 else values

    kernel, pads = wide(a.ints("kernel_size")), wide(a.ints("padding"))
    strides = wide(a.ints("stride")) or kernel
    return {"kernel_shape": kernel, "strides": strides, "pads": pads * 2}


@converted("aten.max_pool2d_with_indices.default")
def _max_pool(g: Graph, a: Arguments) -> list[str | None]:
    if a.rank() != 4:
        raise UnsupportedError("pooling without a batch")
    dilations = a.ints("dilation")
    dilations = dilations * 2 if len(dilations) == 1 else dilations
    options = {**_window(a, 2), "dilations": dilations, "ceil_mode": int(a["ceil_mode"])}
    return [g.op("MaxPool", a.tensor("self"), **options), None]


@converted("aten.avg_pool2d.default", "aten.avg_pool1d.default")
def _avg_pool(g: Graph, a: Arguments) -> str:
    rank = 2 if "2d" in str(a.node.target) else 1
    if a.rank() != rank + 2 or a.get("divisor_override") is not None or a["ceil_mode"]:
        raise UnsupportedError("average pooling without a batch, by ceiling, or with a divisor of its own")
    return str(
        g.op(
            "AveragePool", a.tensor("self"), count_include_pad=int(a["count_include_pad"]), **_window(a, rank)
        )
    )


@converted("aten._adaptive_avg_pool2d.default")
def _adaptive(g: Graph, a: Arguments) -> str:
    if list(a["output_size"]) != [1, 1] or a.rank() != 4:
        raise UnsupportedError("adaptive pooling to more than one element")
    return str(g.op("GlobalAveragePool", a.tensor("self")))


@converted("aten.pixel_shuffle.default")
def _pixel_shuffle(g: Graph, a: Arguments) -> str:
    if a.rank() != 4:
        raise UnsupportedError("pixel shuffle of other than four dimensions")
    return str(g.op("DepthToSpace", a.tensor("self"), blocksize=int(a["upscale_factor"]), mode="CRD"))


@converted("aten.upsample_bilinear2d.vec", "aten.upsample_nearest2d.vec")
def _resample(g: Graph, a: Arguments) -> str:
    sizes, factors = a.get("output_size"), a.get("scale_factors")
    value = a.tensor("input")
    is_linear = "bilinear" in str(a.node.target)
    if is_linear:
        corners = "align_corners" if a["align_corners"] else "half_pixel"
        options = {"mode": "linear", "coordinate_transformation_mode": corners}
    else:
        options = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    if sizes is not None:
        batch = g.op("Shape", value, start=0, end=2)
        return str(g.op("Resize", value, "", "", g.op("Concat", batch, g.ints(sizes), axis=0), **options))
    scales = g.constant([1.0, 1.0, *map(float, factors)], torch.float32)
    return str(g.op("Resize", value, "", scales, **options))
