"""Values of ONNX Runtime over memory of pteron: no copy, and no reference that outlives the call."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

#: By the names that pteron gives element types: ONNX's number of it, and its bytes.
TYPES: dict[str, tuple[int, int]] = {
    "float32": (1, 4),
    "uint8": (2, 1),
    "int8": (3, 1),
    "int16": (5, 2),
    "int32": (6, 4),
    "int64": (7, 8),
    "bool": (9, 1),
    "float16": (10, 2),
    "float64": (11, 8),
    "bfloat16": (16, 2),
}


def numpy_type(name: str) -> np.dtype[Any]:
    """The element type in NumPy; bfloat16 is of ml_dtypes."""
    if name == "bfloat16":
        import ml_dtypes

        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    return np.dtype(name)


def address(array: Array) -> int:
    """Where the bytes of an array are."""
    return int(array.__array_interface__["data"][0])


def bytes_of(dtype: str, shape: tuple[int, ...]) -> int:
    """How many bytes a dense tensor has."""
    return TYPES[dtype][1] * int(np.prod(shape, dtype=np.int64))


class _Numbers:
    """An array over bytes of another one that NumPy does not know to be read-only.

    ONNX Runtime takes no read-only arrays, and does not write to constants.
    """

    __slots__ = ("__array_interface__", "_kept")

    def __init__(self, array: Array, dtype: str, shape: tuple[int, ...]) -> None:
        self._kept = array
        stored = "uint16" if dtype == "bfloat16" else dtype
        self.__array_interface__ = {
            "shape": shape,
            "typestr": np.dtype(stored).str,
            "data": (address(array), False),
            "version": 3,
        }


def constant_over(array: Array, dtype: str, shape: tuple[int, ...]) -> Any:
    """An OrtValue over the bytes of `array`, which it keeps alive."""
    import onnxruntime

    numbers = np.asarray(_Numbers(array, dtype, shape))
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(numbers, TYPES[dtype][0])
