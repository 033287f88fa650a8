"""What a program states about one tensor value: element type, upper bound of its shape, memory order,
place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pteron.errors import ExportError
from pteron.exir.edge.extent_bounds import Ranges, extent_bounds, largest_extent
from pteron.exir.edge.spec_names import SpecNames
from pteron.exir.edge.strides import dim_order_from_stride

_CHANNELS_LAST = {4: ((0, 2, 3, 1), torch.channels_last), 5: ((0, 2, 3, 4, 1), torch.channels_last_3d)}


def dim_order_of_value(value: torch.Tensor) -> tuple[int, ...]:
    """Dimensions of `value` from outermost to innermost in memory, as a program stores them.

    Contiguous wherever the strides allow that reading (extents of 1 are ambiguous), then channels last; any
    other stride pattern is stored contiguous, since order in memory is not part of what a program computes.
    """
    contiguous = tuple(range(value.dim()))
    if value.dim() not in _CHANNELS_LAST or value.is_contiguous():
        return contiguous
    order, memory_format = _CHANNELS_LAST[value.dim()]
    return order if value.is_contiguous(memory_format=memory_format) else contiguous


class TensorSpec(SpecNames):
    """One tensor value.

    `shape`: extents, each an upper bound where it can vary; `extents`: the same, symbolic where they vary.
    `base`: the value whose memory this one shares (a view), else None.
    `memory_id` (from 1) and `memory_offset` (bytes): the place that memory planning chose; None for
    constants and for tensors whose memory the caller gives.
    `is_state`: a buffer that keeps its contents between runs though this method does not update it.
    `lifetime`: first and last position at which planning found its memory in use; [None, None] before.

    The arguments are ExecuTorch's. Extents of `shape` that vary need a bound, or a value on the example
    inputs.
    """

    def __init__(
        self,
        dtype: torch.dtype,
        shape: Sequence[int | torch.SymInt],
        layout: torch.layout = torch.strided,
        is_sparse: bool = False,
        const: bool = False,
        requires_grad: bool = False,
        extra_tensor_info: Any = None,
    ) -> None:
        super().__init__()
        self.dtype = dtype
        self.shape = list(map(largest_extent, shape))
        self.extents = tuple(shape)
        self.dim_order = tuple(range(len(self.shape)))
        self.layout = layout
        self.is_sparse = is_sparse
        self.requires_grad = requires_grad
        self.extra_tensor_info = extra_tensor_info
        self.base: TensorSpec | None = None
        self.memory_id: int | None = None
        self.memory_offset: int | None = None
        self.is_constant = const
        self.is_caller_owned = False
        self.is_state = False

    @classmethod
    def from_value(cls, value: torch.Tensor, ranges: Ranges | None = None) -> TensorSpec:
        """The spec of a (fake) tensor. ExportError where a dimension has no upper bound."""
        shape = []
        for position, extent in enumerate(value.shape):
            _, largest = extent_bounds(extent, ranges)
            if largest is None:
                raise ExportError(
                    f"dimension {position} of a {value.dtype} tensor of shape {tuple(value.shape)} "
                    "has no upper bound",
                    expected="a finite largest extent for every dimension",
                    got=str(extent),
                    hint="give the dimension one: torch.export.Dim(name, max=...)",
                )
            shape.append(largest)
        spec = cls(value.dtype, shape, requires_grad=value.requires_grad)
        spec.extents = tuple(value.shape)
        spec.dim_order = dim_order_of_value(value)
        return spec

    @classmethod
    def from_tensor(cls, tensor: torch.Tensor, const: bool = False) -> TensorSpec:
        """The spec of a tensor in the memory order that its strides state. `const`: with its contents, which
        are made contiguous.
        """
        if const:
            tensor = tensor.contiguous()
            if tensor.nbytes != tensor.untyped_storage().nbytes():
                tensor = tensor.clone()
        spec = cls(tensor.dtype, tensor.shape, tensor.layout, tensor.is_sparse, const, tensor.requires_grad)
        spec.dim_order = dim_order_from_stride(tensor.stride())
        spec.storage = tensor.untyped_storage() if const else None
        return spec

    @property
    def is_dynamic(self) -> bool:
        """Whether an extent can vary from one run to the next."""
        return any(not isinstance(extent, int) for extent in self.extents)

    def is_like(self, other: TensorSpec) -> bool:
        """Whether the two describe tensors of one kind: element type, bounds, memory order, variability."""
        return (
            self.dtype == other.dtype
            and self.shape == other.shape
            and self.dim_order == other.dim_order
            and self.is_dynamic == other.is_dynamic
        )

    @property
    def root(self) -> TensorSpec:
        """The value that owns the memory: this one, or the base of the base of ... it."""
        spec = self
        while spec.base is not None:
            spec = spec.base
        return spec
