"""`pteron.Tensor`: buffer protocol, DLPack, metadata."""

from __future__ import annotations

import numpy as np
import pytest

import pteron
from tests.support.programs import add_method, build

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def tensor() -> pteron.Tensor:
    base = pteron.load(build(add_method())).load_method()(X, np.zeros_like(X)).base
    assert isinstance(base, pteron.Tensor)
    return base


def test_metadata(tensor: pteron.Tensor) -> None:
    assert tensor.shape == (2, 3)
    assert tensor.strides == (3, 1)
    assert (tensor.dtype, tensor.ndim, tensor.nbytes) == ("float32", 2, 24)
    assert tensor.writable
    assert tensor.valid
    assert repr(tensor) == "pteron.Tensor(shape=[2, 3], dtype=float32)"


def test_buffer_protocol(tensor: pteron.Tensor) -> None:
    view = memoryview(tensor)
    assert (view.format, view.shape, view.strides, view.readonly) == ("f", (2, 3), (12, 4), False)
    assert bytes(tensor) == X.tobytes() == tensor.tobytes()
    np.testing.assert_array_equal(np.asarray(tensor), X)
    np.asarray(tensor)[0, 0] = 9
    assert view[0, 0] == 9
    assert tensor.numpy()[0, 0] == 9


def test_copies_and_dtypes_through_numpy(tensor: pteron.Tensor) -> None:
    copied = np.array(tensor)
    copied[...] = 0
    np.testing.assert_array_equal(tensor.numpy(), X)
    assert tensor.__array__(np.dtype(np.float64)).dtype == np.float64
    with pytest.raises(ValueError, match="without a copy"):
        tensor.__array__(np.dtype(np.float64), copy=False)


def test_dlpack_round_trip(tensor: pteron.Tensor) -> None:
    assert tensor.__dlpack_device__() == (1, 0)
    array = np.from_dlpack(tensor)
    np.testing.assert_array_equal(array, X)
    assert np.shares_memory(array, tensor.numpy())
    del tensor
    np.testing.assert_array_equal(array, X)


def test_dlpack_options(tensor: pteron.Tensor) -> None:
    assert "dltensor_versioned" in repr(tensor.__dlpack__(max_version=(1, 0)))
    assert '"dltensor"' in repr(tensor.__dlpack__())
    assert '"dltensor"' in repr(tensor.__dlpack__(max_version=(0, 8)))
    tensor.__dlpack__(dl_device=(1, 0), copy=True, max_version=(1, 1))
    with pytest.raises(BufferError, match="CPU"):
        tensor.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="stream"):
        tensor.__dlpack__(stream=1)  # type: ignore[arg-type]


def test_only_outputs_of_delegates_can_be_resized(tensor: pteron.Tensor) -> None:
    with pytest.raises(BufferError, match="only an output of a running delegate call"):
        tensor.resize([2, 3])


def test_instances_cannot_be_made_or_changed() -> None:
    for cls in (pteron.Tensor, pteron.Program, pteron.Method, pteron.ValueSpec, pteron.DimRange):
        with pytest.raises(TypeError):
            cls()
    method = pteron.load(build(add_method())).load_method()
    with pytest.raises(AttributeError):
        method.name = "other"  # type: ignore[misc]


def test_bfloat16_has_no_buffer_format_but_dlpack_and_bytes() -> None:
    m = add_method((2,), "bfloat16")
    method = pteron.load(build(m)).load_method()
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.array([1, 2], dtype=ml_dtypes.bfloat16)
    result = method(x, x)
    tensor = result.base
    with pytest.raises(BufferError, match="bfloat16"):
        memoryview(tensor)
    assert tensor.tobytes() == np.array([2, 4], dtype=ml_dtypes.bfloat16).tobytes()
    np.testing.assert_array_equal(np.asarray(tensor).astype(np.float32), [2, 4])
