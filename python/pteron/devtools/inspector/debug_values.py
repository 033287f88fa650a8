"""Values of a run: from the debug buffer into arrays."""

from __future__ import annotations

import sys
from math import prod
from typing import Any

import numpy as np

from pteron.devtools.etdump.flatbuffer import EtdumpError
from pteron.devtools.etdump.schema import Tensor, Value
from pteron.scalar_types import SCALAR_TYPES
from pteron.torch_form import torch_where_loaded

_NAMES = {number: name for name, number in SCALAR_TYPES.items()}
#: Types that NumPy has no word for, and as what their bits are read.
_BITS = {"complex32": "uint32", "bits16": "uint16", "bfloat16": "uint16"}
_KINDS = {
    "Int": ("int_value", "int_val"),
    "Bool": ("bool_value", "bool_val"),
    "Float": ("float_value", "float_val"),
    "Double": ("double_value", "double_val"),
}


def inflate_value(value: Value, buffer: bytes | None) -> Any:
    """A value: a number, a tensor, or a list of tensors. Tensors are torch's where torch is loaded, else
    NumPy's; None where there is no buffer.

    Raises:
        EtdumpError: the value does not have what its kind needs, or a tensor is not in the buffer.
    """
    if value.val in _KINDS:
        table, name = _KINDS[value.val]
        held = getattr(value, table)
        if held is None:
            raise EtdumpError(f"the ETDump file is damaged: a value of kind {value.val} without one")
        return getattr(held, name)
    if value.val == "Tensor":
        return _tensor(value.tensor, buffer)
    if value.val == "TensorList":
        tensors = None if value.tensor_list is None else value.tensor_list.tensors
        return [_tensor(each, buffer) for each in tensors or ()]
    return None


def _tensor(tensor: Tensor | None, buffer: bytes | None) -> Any:
    if tensor is None:
        raise EtdumpError("the ETDump file is damaged: a value of kind Tensor without one")
    name = _NAMES.get(tensor.scalar_type)
    sizes = tensor.sizes or []
    if name is None or any(extent < 0 for extent in sizes):
        raise EtdumpError(
            "the ETDump file is damaged: a tensor of no known element type or size",
            got=f"element type {tensor.scalar_type}, sizes {sizes}",
        )
    if buffer is None:
        return None
    order = _order_in_memory(sizes, tensor.strides)
    dtype, torch_name = _dtype(name)
    nbytes = prod(sizes) * dtype.itemsize
    if not 0 <= tensor.offset <= len(buffer) - nbytes:
        raise EtdumpError(
            "the debug buffer does not have the bytes of a tensor",
            expected=f"{nbytes} bytes at {tensor.offset}",
            got=f"a buffer of {len(buffer)} bytes",
            hint="debug_buffer_path is the file that was written beside this ETDump",
        )
    if nbytes == 0:
        flat = np.zeros([sizes[dim] for dim in order], dtype)
    else:
        flat = np.frombuffer(buffer, dtype, prod(sizes), tensor.offset).copy()
    laid_out = flat.reshape([sizes[dim] for dim in order])
    found = laid_out.transpose([order.index(dim) for dim in range(len(sizes))])
    return _as_torch(found, torch_name)


def _order_in_memory(sizes: list[int], strides: list[int] | None) -> list[int]:
    """The dimensions from the outermost in memory; those of the file have no gaps."""
    plain = list(range(len(sizes)))
    if not strides or 0 in sizes:
        return plain
    if len(strides) != len(sizes):
        raise EtdumpError("the ETDump file is damaged: a tensor with another number of strides than of sizes")
    order = sorted(plain, key=lambda dim: (-strides[dim], dim))
    expected = 1
    for dim in reversed([each for each in order if sizes[each] > 1]):
        if strides[dim] != expected:
            raise EtdumpError(
                "the ETDump file is damaged: strides that leave gaps", got=f"sizes {sizes}, strides {strides}"
            )
        expected *= sizes[dim]
    return order


def _dtype(name: str) -> tuple[np.dtype[Any], str | None]:
    """How NumPy reads the type, and torch's name where the bits are not NumPy's own type."""
    try:
        return np.dtype(name), None
    except TypeError:
        width = 1 if name.startswith("float8") else 0
        return np.dtype("uint8" if width else _BITS[name]), name


def _as_torch(array: Any, name: str | None) -> Any:
    found = torch_where_loaded(array)
    dtype = None if name is None or found is array else getattr(sys.modules["torch"], name, None)
    return found if dtype is None else found.view(dtype)
