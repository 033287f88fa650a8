"""Specs of tensors, and the numbers that a program file has for what they state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from pteron.compat.exir.error import internal_assert
from pteron.exir.edge.spec_names import ALIGNMENT
from pteron.exir.edge.strides import (
    contiguous_stride_from_shape,
    dim_order_from_stride,
    stride_from_dim_order,
)
from pteron.exir.edge.tensor_spec import TensorSpec
from pteron.exir.schema import (
    AllocationDetails,
    DeviceType,
    ExtraTensorInfo,
    ScalarType,
    Tensor,
    TensorShapeDynamism,
)

__all__ = [
    "ALIGNMENT",
    "AddressSpaceOverflowException",
    "TensorSpec",
    "calculate_aligned_num_bytes",
    "check_spec",
    "contiguous_stride_from_shape",
    "determine_tensor_dynanism",
    "dim_order_from_stride",
    "enum_to_scalar_map",
    "get_scalar_type",
    "layout_enum",
    "make_allocation_info",
    "make_tensor_value",
    "memory_format_enum",
    "num_bytes_from_shape_and_dtype",
    "scalar_type_enum",
    "scalar_type_table",
    "stride_from_dim_order",
]


class AddressSpaceOverflowException(Exception):  # noqa: N818 -- the name that callers catch
    """An offset that 64 bits cannot hold."""


scalar_type_table: dict[torch.dtype, ScalarType] = {
    torch.uint8: ScalarType.BYTE,
    torch.int8: ScalarType.CHAR,
    torch.int16: ScalarType.SHORT,
    torch.int32: ScalarType.INT,
    torch.int64: ScalarType.LONG,
    torch.float16: ScalarType.HALF,
    torch.float32: ScalarType.FLOAT,
    torch.float64: ScalarType.DOUBLE,
    torch.complex32: ScalarType.COMPLEX32,
    torch.complex64: ScalarType.COMPLEX64,
    torch.complex128: ScalarType.COMPLEX128,
    torch.bool: ScalarType.BOOL,
    torch.qint8: ScalarType.QINT8,
    torch.quint8: ScalarType.QUINT8,
    torch.qint32: ScalarType.QINT32,
    torch.bfloat16: ScalarType.BFLOAT16,
    torch.quint4x2: ScalarType.QUINT4x2,
    torch.float8_e5m2: ScalarType.FLOAT8E5M2,
    torch.float8_e4m3fn: ScalarType.FLOAT8E4M3FN,
    torch.uint16: ScalarType.UINT16,
    torch.uint32: ScalarType.UINT32,
}
enum_to_scalar_map = {number: dtype for dtype, number in scalar_type_table.items()}


def scalar_type_enum(dtype: torch.dtype) -> ScalarType:
    """The number of an element type; KeyError where the format has none."""
    internal_assert(isinstance(dtype, torch.dtype), "We only support dtypes defined in Pytorch Core")
    return scalar_type_table[dtype]


def get_scalar_type(enum: ScalarType) -> torch.dtype:
    """The element type of a number."""
    return enum_to_scalar_map[enum]


def layout_enum(layout: torch.layout) -> int:
    """The number of a layout; KeyError where the format has none."""
    return {torch.strided: 0, torch.sparse_coo: 1}[layout]


def memory_format_enum(memory_format: torch.memory_format) -> int:
    """The number of a memory format; KeyError where there is none."""
    internal_assert(isinstance(memory_format, torch.memory_format), "We only support torch.memory_format")
    return {torch.contiguous_format: 0, torch.preserve_format: 1}[memory_format]


def num_bytes_from_shape_and_dtype(shape: Sequence[int], dtype: torch.dtype) -> int:
    """Bytes of a tensor without gaps."""
    return math.prod(shape) * dtype.itemsize


def calculate_aligned_num_bytes(num: int, alignment: int) -> int:
    """`num`, rounded up to a multiple of `alignment`."""
    return -(-num // alignment) * alignment


def determine_tensor_dynanism(shape: Sequence[int | torch.SymInt]) -> TensorShapeDynamism:
    """Whether extents of a shape vary."""
    is_static = all(isinstance(extent, int) for extent in shape)
    return TensorShapeDynamism.STATIC if is_static else TensorShapeDynamism.DYNAMIC_BOUND


def make_allocation_info(mem_id: int, mem_offset: int) -> AllocationDetails:
    """A place in planned memory as a program file states it.

    Raises:
        ValueError: the offset is negative.
        AddressSpaceOverflowException: the offset does not fit in 64 bits.
    """
    if mem_offset < 0:
        raise ValueError(f"mem_offset {mem_offset} must not be negative")
    if mem_offset >> 64:
        raise AddressSpaceOverflowException(f"mem_offset {mem_offset} does not fit in 64 bits")
    return AllocationDetails(mem_id, mem_offset & 0xFFFFFFFF, mem_offset >> 32)


def make_tensor_value(
    data_buffer_idx: int, allocation_info: AllocationDetails | None, spec: TensorSpec
) -> Tensor:
    """The value that a program file has for a tensor."""
    extra: Any = spec.extra_tensor_info
    if spec.device is not DeviceType.CPU:
        extra = extra or ExtraTensorInfo()
        extra.device_type, extra.device_index = spec.device, spec.device_index
    return Tensor(
        scalar_type=scalar_type_enum(spec.dtype),
        storage_offset=0,
        sizes=list(spec.shape),
        dim_order=list(spec.dim_order),
        requires_grad=spec.requires_grad,
        layout=layout_enum(spec.layout),
        data_buffer_idx=data_buffer_idx,
        allocation_info=allocation_info,
        shape_dynamism=spec.shape_dynamism,
        extra_tensor_info=extra,
    )


def check_spec(tensor: torch.Tensor, spec: TensorSpec) -> None:
    """InternalError where a tensor is not what its spec states."""
    for name, actual, expected in (
        ("is_sparse", tensor.is_sparse, spec.is_sparse),
        ("shape", tuple(tensor.shape), tuple(spec.shape)),
        ("dtype", tensor.dtype, spec.dtype),
    ):
        internal_assert(
            actual == expected,
            f"Tensor attribute '{name}' is expected to be equal to '{expected}', actually got: '{actual}'",
        )
