"""Tensors of the Open Inference Protocol as JSON and as bytes, of every element type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pteron.asgi import HttpError
from pteron.integrations.oip.tensors import DATATYPES, from_bytes, from_json, numpy_dtype, to_bytes, to_json

#: Shapes, with an empty and a scalar one.
SHAPES = ((2, 3), (0, 4), (), (1,))


def _array(dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    numbers = np.arange(int(np.prod(shape))).reshape(shape)
    return np.asarray((numbers % 2 if dtype == "bool" else numbers * 3).astype(numpy_dtype(dtype)))


@pytest.mark.parametrize("dtype", DATATYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_type_comes_back(dtype: str, shape: tuple[int, ...]) -> None:
    array = _array(dtype, shape)
    for found in (
        from_json(to_json(array, "out"), dtype, list(shape), "in"),
        from_bytes(memoryview(to_bytes(array)), dtype, list(shape), "in"),
    ):
        assert found.dtype == array.dtype
        assert found.shape == shape
        assert found.tobytes() == array.tobytes()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_json_has_no_form_for_infinity_and_nan(dtype: str) -> None:
    for number in (np.inf, -np.inf, np.nan):
        array = np.array([1.0, number]).astype(numpy_dtype(dtype))
        with pytest.raises(HttpError, match="binary_data") as error:
            to_json(array, "out")
        assert error.value.status == 422


@pytest.mark.parametrize(
    ("dtype", "data", "says"),
    [
        ("int8", [128], "beyond the range of INT8"),
        ("uint64", [-1], "beyond the range of UINT64"),
        ("int64", [1.0], "integers alone"),
        ("int32", [True], "integers alone"),
        ("bool", [1], "true and false alone"),
        ("float16", [70000.0], "beyond the range of FP16"),
        ("bfloat16", [1e39], "beyond the range of BF16"),
        ("float32", [10**400], "beyond the range of FP32"),
        ("float32", ["1"], "numbers alone"),
        ("float32", [[1.0], [2.0]], "do not have the shape"),
    ],
)
def test_elements_that_do_not_fit(dtype: str, data: list[Any], says: str) -> None:
    with pytest.raises(HttpError, match=says) as error:
        from_json(data, dtype, [1], "inputs[0]")
    assert error.value.status == 400
    assert str(error.value).startswith("inputs[0].data")


@pytest.mark.parametrize("length", [0, 1, 23, 25])
def test_bytes_of_another_length(length: int) -> None:
    with pytest.raises(HttpError, match="expected 24 bytes for the shape"):
        from_bytes(memoryview(bytes(length)), "float32", [2, 3], "inputs[0]")


def test_a_byte_that_is_no_bool() -> None:
    with pytest.raises(HttpError, match="0 or 1"):
        from_bytes(memoryview(bytes([0, 2])), "bool", [2], "inputs[0]")
