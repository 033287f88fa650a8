"""The names that passes written for ExecuTorch read and write of a `TensorSpec`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from pteron.exir.edge.strides import stride_from_dim_order
from pteron.exir.schema import DeviceType, TensorShapeDynamism

if TYPE_CHECKING:
    from pteron.exir.edge.tensor_spec import TensorSpec

ALIGNMENT = 16


class SpecNames:
    """`TensorSpec` as ExecuTorch spells it: `scalar_type`, `const`, `mem_id`, `mem_offset`, sizes,
    dynamism.
    """

    dtype: torch.dtype
    shape: list[int]
    extents: tuple[int | torch.SymInt, ...]
    dim_order: tuple[int, ...]
    layout: torch.layout
    is_sparse: bool
    requires_grad: bool
    memory_id: int | None
    memory_offset: int | None
    is_constant: bool

    def __init__(self) -> None:
        self.alignment = ALIGNMENT
        self.storage: torch.UntypedStorage | None = None
        self.device = DeviceType.CPU
        self.device_index = 0
        self._shape_dynamism: TensorShapeDynamism | None = None
        self.init_mem_planning_fields()

    def init_mem_planning_fields(self) -> None:
        """Forgets what memory planning found."""
        self.lifetime: list[int | None] = [None, None]
        self.memory_id = None
        self.mem_obj_id: int | None = None
        self.memory_offset = None
        self.storage_base: TensorSpec | None = None
        self.storage_base_offset = 0

    @property
    def root(self) -> TensorSpec:
        """The value that owns the memory."""
        raise NotImplementedError

    @property
    def scalar_type(self) -> torch.dtype:
        """The element type."""
        return self.dtype

    @property
    def const(self) -> bool:
        """Whether the value lies in the program's data."""
        return self.root.is_constant

    @const.setter
    def const(self, value: bool) -> None:
        self.is_constant = value

    @property
    def mem_id(self) -> int | None:
        """The memory that holds it, from 1; None where it has no place in planned memory."""
        return self.root.memory_id

    @mem_id.setter
    def mem_id(self, value: int | None) -> None:
        self.memory_id = value

    @property
    def mem_offset(self) -> int | None:
        """Bytes from the start of its memory."""
        return self.root.memory_offset

    @mem_offset.setter
    def mem_offset(self, value: int | None) -> None:
        self.memory_offset = value

    @property
    def inplace_base(self) -> TensorSpec | None:
        """`storage_base` of a spec that begins where its base does."""
        if self.storage_base is not None and self.storage_base_offset:
            raise ValueError("inplace_base is only valid for a storage_base at offset 0")
        return self.storage_base

    @inplace_base.setter
    def inplace_base(self, base: TensorSpec | None) -> None:
        if self.storage_base_offset:
            raise ValueError("inplace_base can only be set when storage_base_offset is 0; set storage_base")
        self.storage_base = base

    @property
    def stride(self) -> tuple[int, ...]:
        """Strides in elements, at the upper bound of the shape."""
        return tuple(int(step) for step in stride_from_dim_order(self.shape, self.dim_order))

    def nbytes(self) -> int:
        """Bytes at the upper bound of the shape."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def allocated_memory(self) -> int:
        """`nbytes`, rounded up to `alignment`."""
        return -(-self.nbytes() // self.alignment) * self.alignment

    def realign(self, new_alignment: int) -> int:
        """Sets the alignment in bytes; gives the memory that the tensor takes with it."""
        self.alignment = new_alignment
        return self.allocated_memory

    @property
    def shape_dynamism(self) -> TensorShapeDynamism:
        """Whether extents vary: never, or up to the bounds that `shape` states."""
        if self._shape_dynamism is not None:
            return self._shape_dynamism
        is_static = all(isinstance(extent, int) for extent in self.extents)
        return TensorShapeDynamism.STATIC if is_static else TensorShapeDynamism.DYNAMIC_BOUND

    @shape_dynamism.setter
    def shape_dynamism(self, value: TensorShapeDynamism) -> None:
        self._shape_dynamism = value

    @property
    def is_static_shape_tensor(self) -> bool:
        """Whether no extent varies."""
        return self.shape_dynamism is TensorShapeDynamism.STATIC

    @property
    def is_dynamic_shape_tensor(self) -> bool:
        """Whether an extent varies."""
        return not self.is_static_shape_tensor

    @property
    def is_upper_bound_tensor(self) -> bool:
        """Whether an extent varies up to a bound."""
        return self.is_dynamic_shape_tensor

    @property
    def is_dynamic_unbound_tensor(self) -> bool:
        """Whether an extent has no bound: never here."""
        return False

    def debug(self) -> str:
        """One line with what planning decided."""
        return (
            f"TensorSpec(id={id(self)}, const={self.const}, scalar_type={self.scalar_type}, "
            f"allocated_memory={self.allocated_memory}, mem_id={self.mem_id}, mem_offset={self.mem_offset}, "
            f"lifetime={self.lifetime}, shape_dynamism={self.shape_dynamism!r}, shape={list(self.shape)})"
        )

    def __repr__(self) -> str:
        described: dict[str, Any] = {
            "dtype": self.dtype,
            "shape": list(self.shape),
            "layout": self.layout,
            "is_sparse": self.is_sparse,
            "shape_dynamism": repr(self.shape_dynamism),
            "const": self.const,
            "requires_grad": self.requires_grad,
            "device": f"{self.device.name}:{self.device_index}",
        }
        return f"TensorSpec({', '.join(f'{key}={value}' for key, value in described.items())})"
