"""What a call with 16-bit floats must give: eager PyTorch's answer in float64, rounded once.

Eager PyTorch's own float16 and bfloat16 kernels round between their steps, and where they do depends on the
processor (`ATEN_CPU_CAPABILITY`). They say which calls are taken, and shape, dtype and memory order of the
results; the numbers come from the same call on the same inputs, widened without loss.
"""

from __future__ import annotations

import fnmatch
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

SIXTEEN_BITS = (torch.float16, torch.bfloat16)

# In float64 these mean something else: their result is defined by the numbers that the dtype has, or their
# definition names the dtype of each step (PyTorch's quantisers multiply in the dtype of the scales). None of
# them sums, so that eager PyTorch's answer in 16 bits is the same on every processor.
DEFINED_BY_THE_DTYPE = (
    "aten::nan_to_num*",
    "aten::nextafter*",
    "aten::view.dtype*",
    "aten::view_copy.dtype*",
    "quantized_decomposed::embedding_*",
    "quantized_decomposed::choose_qparams_per_token*",
)

Call = Callable[..., list[torch.Tensor]]


def rounded_once(
    name: str, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any], eager: list[torch.Tensor]
) -> list[torch.Tensor]:
    """`eager`'s results with the numbers of `call` in float64, where 16-bit floats take part in it.

    They stay as they are where eager PyTorch does not take the call in float64.
    """
    if not has_sixteen_bits(args, kwargs, eager) or is_defined_by_the_dtype(name):
        return eager
    exact = in_float64(call, args, kwargs)
    if exact is None or [e.shape for e in exact] != [e.shape for e in eager]:
        return eager
    return [_as(e, x) if e.is_floating_point() else e for e, x in zip(eager, exact, strict=True)]


def has_sixteen_bits(*trees: Any) -> bool:
    """Is there a tensor of 16-bit floats, or such a dtype, among the leaves?"""
    return any(getattr(leaf, "dtype", leaf) in SIXTEEN_BITS for leaf in tree_leaves(trees))


def is_defined_by_the_dtype(name: str) -> bool:
    """Would the same call in float64 mean something else?"""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in DEFINED_BY_THE_DTYPE)


def in_float64(call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor] | None:
    """What eager PyTorch answers to the same call with every float widened; None where it refuses."""
    args = tuple(tree_map_only(torch.Tensor, _widened, a) for a in args)
    kwargs = tree_map_only(torch.Tensor, _widened, kwargs)
    args = tuple(_wide_dtype(a) for a in args)
    kwargs = {name: _wide_dtype(value) for name, value in kwargs.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call(*args, **kwargs)
        except Exception:
            return None


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_floating_point():
        return tensor.double()
    return tensor.to(torch.complex128) if tensor.is_complex() else tensor.clone()


def _wide_dtype(value: Any) -> Any:
    is_float = isinstance(value, torch.dtype) and value.is_floating_point
    return torch.float64 if is_float else value


def _as(like: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Exact numbers in dtype and memory order of another tensor."""
    return torch.empty_like(like).copy_(exact)
