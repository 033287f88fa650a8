"""Out variants of operators that have kernels here and whose libraries define none: a few of PyTorch's, and
those of torchvision and transformers.

A program file calls them under the operator's own name; the torch libraries behind them have names of their
own, so that the operators' owners may define such overloads one day. None of their packages is imported here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload

_OUT = "*, Tensor(a!) out) -> Tensor(a!)"
_SCHEMAS = {
    "aten": (
        f"_is_all_true.out(Tensor self, {_OUT}",
        f"_is_any_true.out(Tensor self, {_OUT}",
        "_grouped_mm.out(Tensor self, Tensor mat2, Tensor? offs=None, Tensor? bias=None, "
        f"ScalarType? out_dtype=None, {_OUT}",
    ),
    "torchvision": (
        f"nms.out(Tensor dets, Tensor scores, float iou_threshold, {_OUT}",
        "roi_align.out(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, "
        f"SymInt pooled_width, int sampling_ratio, bool aligned, {_OUT}",
        "deform_conv2d.out(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, "
        "SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, "
        f"SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask, {_OUT}",
    ),
    "transformers": (f"grouped_mm_fallback.out(Tensor input, Tensor weight, Tensor offs, {_OUT}",),
}

#: The torch library behind the out variants of each namespace.
LIBRARIES = {namespace: f"pteron_{namespace}" for namespace in _SCHEMAS}


def _implementation(namespace: str, operator: str) -> Callable[..., Any]:
    def write(*args: Any, out: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        result = getattr(getattr(torch.ops, namespace), operator)(*args, **kwargs)
        return out.resize_(result.shape, memory_format=torch.preserve_format).copy_(result)

    return write


def _register(namespace: str) -> Any:
    # torch.library has no annotations.
    library: Any = torch.library.Library(LIBRARIES[namespace], "DEF")  # type: ignore[no-untyped-call]
    for schema in _SCHEMAS[namespace]:
        library.define(schema)
        operator = schema[: schema.index(".")]
        implementation = _implementation(namespace, operator)
        library.impl(f"{operator}.out", implementation, "CompositeExplicitAutograd")
    return library


# Registrations live as long as the library objects.
_libraries = [_register(namespace) for namespace in _SCHEMAS]


def candidates(op: OpOverload) -> list[OpOverload]:
    """The overloads defined here for the operator of `op`; none for others."""
    namespace, operator = op._schema.name.split("::")
    if not any(schema.startswith(f"{operator}.") for schema in _SCHEMAS.get(namespace, ())):
        return []
    return [getattr(getattr(torch.ops, LIBRARIES[namespace]), operator).out]
