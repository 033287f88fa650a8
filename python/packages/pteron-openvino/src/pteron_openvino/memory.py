"""Tensors of OpenVINO over memory of pteron: no copy, and no reference that outlives the call."""

from __future__ import annotations

from typing import Any

import numpy as np
import openvino as ov

#: By the names that pteron gives element types.
TYPES: dict[str, ov.Type] = {
    "float32": ov.Type.f32,
    "float16": ov.Type.f16,
    "bfloat16": ov.Type.bf16,
    "float64": ov.Type.f64,
    "int64": ov.Type.i64,
    "int32": ov.Type.i32,
    "int16": ov.Type.i16,
    "int8": ov.Type.i8,
    "uint8": ov.Type.u8,
    "bool": ov.Type.boolean,
}


def address(array: np.ndarray[Any, Any]) -> int:
    """Where the bytes of an array are."""
    return int(array.__array_interface__["data"][0])


class _Bytes:
    """The bytes of an array. Without a reference to it: a delegate may keep nothing of a call's arguments.

    They are said to be writable, which OpenVINO asks of every tensor. It writes to results alone.
    """

    __slots__ = ("__array_interface__",)

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.__array_interface__ = {
            "shape": (array.nbytes,),
            "typestr": "|u1",
            "data": (address(array), False),
            "version": 3,
        }


def tensor_over(array: np.ndarray[Any, Any], shape: tuple[int, ...], dtype: str) -> ov.Tensor:
    """A tensor over the bytes of a dense array. Who calls keeps the array alive while OpenVINO works."""
    if not array.nbytes:
        return ov.Tensor(TYPES[dtype], ov.Shape(shape))
    return ov.Tensor(np.asarray(_Bytes(array)), ov.Shape(shape), TYPES[dtype])
