"""Tensors of the Open Inference Protocol: data types, shapes, and data as JSON or as bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pteron.asgi import HttpError

if TYPE_CHECKING:
    import numpy.typing as npt

    from pteron._native import DimRange

    Array = npt.NDArray[Any]

#: Names of the protocol by those of element types.
DATATYPES = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
    "bfloat16": "BF16",
}


def bad(field: str, says: str) -> HttpError:
    """A mistake in a request, at a field."""
    return HttpError(400, f"{field}: {says}")


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The element type in NumPy.

    Raises:
        ImportError: bfloat16 without the package ml_dtypes.
    """
    if dtype == "bfloat16":
        try:
            import ml_dtypes
        except ImportError:
            raise ImportError("bfloat16 inputs need ml_dtypes: pip install ml_dtypes") from None
        found: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return found
    return np.dtype(dtype)


def checked_shape(shape: Any, dims: Sequence[int | DimRange], field: str) -> list[int]:
    """A shape of a request that the program takes."""
    if not isinstance(shape, list) or any(type(extent) is not int for extent in shape):
        raise bad(f"{field}.shape", "expected a list of integers")
    if len(shape) != len(dims):
        raise bad(f"{field}.shape", f"expected {len(dims)} dimensions; got {len(shape)}")
    for axis, (extent, dim) in enumerate(zip(shape, dims, strict=True)):
        if isinstance(dim, int):
            if extent != dim:
                raise bad(f"{field}.shape[{axis}]", f"expected {dim}; got {_shown(extent)}")
        elif extent < 0 or extent > dim.max or extent not in dim:
            raise bad(f"{field}.shape[{axis}]", f"expected {dim.min} to {dim.max}; got {_shown(extent)}")
    return shape


def _shown(number: int) -> str:
    return str(number) if abs(number) < 1 << 64 else "a number beyond 64 bits"


def from_bytes(content: memoryview, dtype: str, shape: list[int], field: str) -> Array:
    """Little-endian elements in row-major order; a view of `content`."""
    element = numpy_dtype(dtype)
    needed = math.prod(shape) * element.itemsize
    if len(content) != needed:
        raise bad(
            f"{field}.parameters.binary_data_size",
            f"expected {needed} bytes for the shape; got {len(content)}",
        )
    if dtype == "bool":
        raw = np.frombuffer(content, np.uint8)
        if raw.size and raw.max() > 1:
            raise bad(field, "a byte of BOOL is 0 or 1")
    return np.frombuffer(content, element).reshape(shape)


def from_json(data: Any, dtype: str, shape: list[int], field: str) -> Array:
    """Elements as a flat list in row-major order, or as lists in lists by the shape."""
    where = f"{field}.data"
    if not isinstance(data, list):
        raise bad(where, "expected a list")
    items = _flat(data, shape, where)
    if len(items) != math.prod(shape):
        raise bad(where, f"expected {math.prod(shape)} elements for the shape; got {len(items)}")
    element, kinds = numpy_dtype(dtype), set(map(type, items))
    if dtype == "bool":
        if kinds - {bool}:
            raise bad(where, "expected true and false alone")
    elif element.kind in "iu":
        if kinds - {int}:
            raise bad(where, f"expected integers alone for {DATATYPES[dtype]}")
        limits = np.iinfo(element)
        if items and (min(items) < limits.min or max(items) > limits.max):
            raise bad(where, f"a number is beyond the range of {DATATYPES[dtype]}")
    else:
        return _floats(items, kinds, element, dtype, where).reshape(shape)
    return np.array(items, element).reshape(shape)


def _floats(items: list[Any], kinds: set[type], element: np.dtype[Any], dtype: str, where: str) -> Array:
    if kinds - {int, float}:
        raise bad(where, f"expected numbers alone for {DATATYPES[dtype]}")
    try:
        with np.errstate(over="ignore"):
            found = np.array(items, np.float64).astype(element)
    except OverflowError:
        raise bad(where, f"a number is beyond the range of {DATATYPES[dtype]}") from None
    if not np.isfinite(found).all():
        raise bad(where, f"a number is beyond the range of {DATATYPES[dtype]}")
    return found


def _flat(data: list[Any], shape: list[int], where: str) -> list[Any]:
    if not any(isinstance(item, list) for item in data):
        return data
    items: list[Any] = [data]
    for extent in shape:
        if any(not isinstance(item, list) or len(item) != extent for item in items):
            raise bad(where, "the lists in lists do not have the shape")
        items = [one for item in items for one in item]
    return items


def to_bytes(value: Any) -> bytes:
    """Little-endian elements in row-major order, of an array or of `pteron.Tensor`."""
    found: bytes = value.tobytes()
    return found


def to_json(value: Any, name: str) -> list[Any]:
    """Elements as a flat list.

    Raises:
        HttpError: an element is infinite or no number, for which JSON has no form (422).
    """
    array = value if isinstance(value, np.ndarray) else _bfloat16_as_float32(value)
    if array.dtype.kind not in "biuf":
        array = array.astype(np.float32)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise HttpError(
            422, f"the output {name!r} has infinite elements or NaN, which JSON lacks; ask for binary_data"
        )
    found: list[Any] = array.ravel().tolist()
    return found


def _bfloat16_as_float32(value: Any) -> Array:
    """An output of bfloat16 without ml_dtypes is a `pteron.Tensor`; its bits are float32's upper ones."""
    bits = np.frombuffer(value.tobytes(), np.uint16).astype(np.uint32) << 16
    return bits.view(np.float32)
