"""What a method accepts: kinds of arrays, strides, dtypes, shapes, scalars."""

from __future__ import annotations

import array
import re
from typing import Any

import numpy as np
import pytest

import pteron
from tests.support.programs import (
    MethodBuilder,
    add_method,
    build,
    call_tree,
    dynamic_add_method,
    leaf,
    tree_text,
)


@pytest.fixture(scope="module", params=[True, False], ids=["planned", "unplanned"])
def add(request: pytest.FixtureRequest) -> pteron.Method:
    return pteron.load(build(add_method(planned=request.param))).load_method("forward")


X = np.arange(6, dtype=np.float32).reshape(2, 3)
Y = np.full((2, 3), 10, dtype=np.float32)


def _misaligned(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    raw = np.zeros(a.nbytes + 1, dtype=np.uint8)
    out = raw[1:].view(a.dtype).reshape(a.shape)
    out[...] = a
    assert not out.flags.aligned
    return out


def _field(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A field of packed records: strides that are no multiple of the item size."""
    records = np.zeros(a.shape, dtype=np.dtype([("flag", "u1"), ("x", "f4")]))
    records["x"] = a
    out = records["x"]
    assert out.strides[-1] == 5
    return out


def _read_only(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    out = a.copy()
    out.flags.writeable = False
    return out


class OnlyDLPack:
    """An array that can be had through DLPack alone."""

    def __init__(self, a: np.ndarray[Any, Any], *, knows_versions: bool = True) -> None:
        self._array = a
        self._knows_versions = knows_versions

    def __dlpack__(self, **options: Any) -> object:
        if options and not self._knows_versions:
            raise TypeError("unexpected keyword argument")
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


VARIANTS = {
    "contiguous": lambda a: a,
    "fortran": np.asfortranarray,
    "transposed": lambda a: np.ascontiguousarray(a.T).T,
    "reversed": lambda a: np.ascontiguousarray(a[::-1, ::-1])[::-1, ::-1],
    "every other": lambda a: np.repeat(a, 2, axis=1)[:, ::2],
    "misaligned": _misaligned,
    "field of records": _field,
    "read-only": _read_only,
    "subclass": lambda a: a.view(np.matrix),
    "memoryview": memoryview,
    "strided memoryview": lambda a: memoryview(np.repeat(a, 2, axis=1)[:, ::2]),
    "dlpack": OnlyDLPack,
    "legacy dlpack": lambda a: OnlyDLPack(a, knows_versions=False),
    "strided dlpack": lambda a: OnlyDLPack(np.asfortranarray(a)),
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_every_kind_of_array_gives_the_same_result(add: pteron.Method, variant: str) -> None:
    given = VARIANTS[variant](X)
    before = X.copy()
    np.testing.assert_array_equal(add(given, Y), X + Y)
    np.testing.assert_array_equal(add(Y, given), X + Y)
    np.testing.assert_array_equal(X, before)


def test_broadcast_views_are_read_as_they_look(add: pteron.Method) -> None:
    row = np.broadcast_to(np.array([1, 2, 3], dtype=np.float32), (2, 3))
    np.testing.assert_array_equal(add(X, row), X + row)


def test_one_array_may_be_given_twice(add: pteron.Method) -> None:
    np.testing.assert_array_equal(add(X, X), X + X)


def test_buffers_of_other_types() -> None:
    method = pteron.load(build(add_method((4,)))).load_method()
    numbers = array.array("f", [1, 2, 3, 4])
    np.testing.assert_array_equal(method(numbers, np.ones(4, np.float32)), [2, 3, 4, 5])


def test_pteron_tensors_are_accepted(add: pteron.Method) -> None:
    result = add(X, Y)
    assert isinstance(result.base, pteron.Tensor)
    np.testing.assert_array_equal(add(result.base, Y), X + Y + Y)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int64", "int32", "int16", "int8", "uint8"])
def test_dtypes(dtype: str) -> None:
    method = pteron.load(build(add_method(dtype=dtype))).load_method()
    x = np.arange(6).reshape(2, 3).astype(dtype)
    result = method(x, x)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, x + x)


def test_bfloat16_through_ml_dtypes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    method = pteron.load(build(add_method(dtype="bfloat16"))).load_method()
    x = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)
    for given in (x, np.asfortranarray(x)):
        result = method(given, x)
        assert result.dtype == ml_dtypes.bfloat16
        np.testing.assert_array_equal(result.astype(np.float32), 2 * x.astype(np.float32))


def test_numpy_scalars_are_tensors_of_rank_0() -> None:
    method = pteron.load(build(add_method(()))).load_method()
    result = method(np.float32(1.5), np.array(2, dtype=np.float32))
    assert result.shape == ()
    assert result == 3.5
    wide = pteron.load(build(add_method((), "float64"))).load_method()
    assert wide(np.float64(1.5), np.float64(2)) == 3.5


def test_empty_tensors() -> None:
    method = pteron.load(build(add_method((0, 3)))).load_method()
    empty = np.zeros((0, 3), dtype=np.float32)
    assert method(empty, empty).shape == (0, 3)


@pytest.mark.parametrize(
    ("given", "error", "parts"),
    [
        (
            X.astype(np.float64),
            pteron.InputTypeError,
            ["argument 'x'", "expected", "float32", "got", "float64"],
        ),
        (X.astype(">f4"), pteron.InputTypeError, ["'>f'", "byte order"]),
        (X[0], pteron.InputError, ["argument 'x'", "expected", "got"]),
        (np.zeros((2, 4), np.float32), pteron.InputError, ["argument 'x'", "3", "4"]),
        (np.zeros((2, 3, 1), np.float32), pteron.InputError, ["argument 'x'"]),
        ([1.0, 2.0], pteron.InputTypeError, ["got list", "numpy.asarray", "float32[2, 3]"]),
        (3.0, pteron.InputTypeError, ["got float", "float32[2, 3]"]),
        (3, pteron.InputTypeError, ["got int"]),
        (True, pteron.InputTypeError, ["got bool"]),
        (None, pteron.InputTypeError, ["got NoneType"]),
        ("text", pteron.InputTypeError, ["got str"]),
        (np.array(["a"]), pteron.InputTypeError, ["buffer format"]),
        (np.zeros((2, 3), dtype=object), pteron.InputTypeError, ["argument 'x'"]),
        (np.zeros((2, 3), dtype=np.longdouble), pteron.InputTypeError, ["argument 'x'"]),
    ],
    ids=lambda v: type(v).__name__,
)
def test_wrong_inputs_say_what_where_expected_and_got(
    add: pteron.Method, given: Any, error: type[pteron.PteronError], parts: list[str]
) -> None:
    with pytest.raises(error) as caught:
        add(given, Y)
    text = str(caught.value)
    assert "method 'forward'" in text
    for part in parts:
        assert part in text, text
    assert caught.value.method == "forward"
    assert caught.value.argument == "x"
    assert "\n" not in text
    assert not re.search(r"0x[0-9a-f]{6,}", text)
    # Nothing has changed for the next call.
    np.testing.assert_array_equal(add(X, Y), X + Y)


def test_dlpack_on_another_device_is_refused(add: pteron.Method) -> None:
    class OnGpu(OnlyDLPack):
        def __dlpack_device__(self) -> tuple[int, int]:
            return (2, 0)

    with pytest.raises(pteron.InputTypeError, match=r"device.*hint: move it to the CPU"):
        add(OnGpu(X), Y)


def test_dlpack_that_raises_is_the_cause(add: pteron.Method) -> None:
    class Broken(OnlyDLPack):
        def __dlpack__(self, **options: Any) -> object:
            raise BufferError("no export today")

    with pytest.raises(pteron.InputTypeError, match="DLPack export failed") as caught:
        add(Broken(X), Y)
    assert isinstance(caught.value.__cause__, BufferError)


def test_dynamic_shapes_are_checked_against_range_and_symbol() -> None:
    program = pteron.load(build(dynamic_add_method()))
    method = program.load_method()
    for rows in (1, 5, 8):
        x = np.random.default_rng(rows).random((rows, 3), dtype=np.float32)
        np.testing.assert_array_equal(method(x, x), x + x)
    ok = np.zeros((4, 3), np.float32)
    with pytest.raises(pteron.InputError) as caught:
        method(np.zeros((9, 3), np.float32), ok)
    assert "argument 'x'" in str(caught.value)
    assert "9" in str(caught.value)
    assert "8" in str(caught.value)
    with pytest.raises(pteron.InputError, match="argument 'x'"):
        method(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32))
    with pytest.raises(pteron.InputError, match=r"argument .y.*dimension 0.*as in input .x. .*got 5"):
        method(ok, np.zeros((5, 3), np.float32))
    np.testing.assert_array_equal(method(ok, ok), ok)


def test_specs_tell_names_dtypes_and_ranges() -> None:
    program = pteron.load(build(dynamic_add_method()))
    x, y = program.inputs("forward")
    assert (x.name, x.kind, x.dtype) == ("x", "tensor", "float32")
    rows, columns = x.shape
    assert columns == 3
    assert (rows.min, rows.max, rows.symbol) == (1, 8, "s0")
    assert tuple(rows) == (1, 8)
    assert 8 in rows
    assert 9 not in rows
    assert rows == y.shape[0]
    assert repr(x) == "x: float32[s0=1..8, 3]"
    assert x.nbytes == 8 * 3 * 4
    assert program.outputs()[0].shape[1] == 3
    with pytest.raises(AttributeError):
        x.name = "z"  # type: ignore[misc]


def _scalars() -> pteron.Method:
    m = MethodBuilder()
    x = m.input(m.tensor([2, 3]), "x")
    alpha = m.input(m.int(2), "alpha")
    m.ranges[alpha] = [0, 10]
    flag = m.input(m.bool(True), "flag")
    eps = m.input(m.double(0.5), "eps")
    m.input(m.string("fast"), "mode")
    absent = m.input(m.none(), "absent")
    out = m.output(m.tensor([2, 3]))
    m.call("aten::add.out", [x, x, alpha, out, out])
    m.output(alpha)
    m.output(flag)
    m.output(eps)
    m.output(absent)
    m.input_tree = call_tree([leaf()] * 6)
    return pteron.load(build(m)).load_method()


def test_scalars_in_and_out() -> None:
    method = _scalars()
    result = method(X, 3, True, 0.5, "fast", None)
    np.testing.assert_array_equal(result[0], X + 3 * X)
    assert result[1:] == (3, True, 0.5, None)
    assert [type(r) for r in result[1:4]] == [int, bool, float]
    assert method(X, np.int64(4), True, 0.5, "fast", None)[1] == 4
    kinds = [spec.kind for spec in method.inputs]
    assert kinds == ["tensor", "int", "bool", "float", "str", "none"]
    assert method.inputs[1].range == (0, 10)
    assert [spec.value for spec in method.inputs] == [None, None, True, 0.5, "fast", None]


@pytest.mark.parametrize(
    ("position", "value", "name"),
    [
        (1, 11, "alpha"),
        (1, 2.0, "alpha"),
        (1, X, "alpha"),
        (1, 2**70, "alpha"),
        (2, False, "flag"),
        (2, 1, "flag"),
        (3, 0.75, "eps"),
        (4, "slow", "mode"),
        (5, 1, "absent"),
    ],
)
def test_wrong_scalars(position: int, value: Any, name: str) -> None:
    inputs: list[Any] = [X, 3, True, 0.5, "fast", None]
    inputs[position] = value
    method = _scalars()
    with pytest.raises(pteron.InputError) as caught:
        method(*inputs)
    assert caught.value.argument == name
    assert f"argument '{name}'" in str(caught.value)


def test_flat_execution_and_counts() -> None:
    method = pteron.load(build(add_method())).load_method()
    for inputs in ([X, Y], (X, Y), iter([X, Y])):
        (result,) = method.execute(inputs)
        np.testing.assert_array_equal(result, X + Y)
    with pytest.raises(pteron.InputError, match=r"wrong number of inputs; expected 2 \(x, y\); got 1"):
        method.execute([X])
    with pytest.raises(pteron.InputTypeError, match=r"must be a list or tuple.*wrap a single tensor"):
        method.execute(X)
    with pytest.raises(pteron.InputError, match="positional arguments"):
        method(X)


def test_method_without_stored_structure_is_called_flat() -> None:
    m = add_method()
    m.input_tree = m.output_tree = ""
    method = pteron.load(build(m)).load_method()
    np.testing.assert_array_equal(method(X, Y), X + Y)
    with pytest.raises(pteron.InputError, match="no names of keyword arguments"):
        method(X, y=Y)


def test_damaged_structure_leaves_flat_execution() -> None:
    for text in ("{", "[2, {}]", tree_text(leaf()), call_tree([leaf()] * 3)):
        m = add_method()
        m.input_tree = text
        method = pteron.load(build(m)).load_method()
        with pytest.raises(pteron.ProgramError, match=r"structure of the arguments.*method\.execute"):
            method(X, Y)
        np.testing.assert_array_equal(method.execute([X, Y])[0], X + Y)


class Stopped(Exception):
    """Raised by an iterable of inputs."""


@pytest.mark.parametrize("error", [Stopped, KeyboardInterrupt])
def test_what_an_iterable_of_inputs_raises_comes_out(error: type[BaseException]) -> None:
    method = pteron.load(build(add_method())).load_method()
    x = np.ones((2, 3), np.float32)

    def inputs() -> Any:
        yield x
        raise error("mine")

    with pytest.raises(error, match="mine"):
        method.execute(inputs())
    with pytest.raises(error, match="mine"):
        method.execute([x, x], outputs=inputs())
    np.testing.assert_array_equal(method.execute(v for v in (x, x))[0], 2 * x)


def test_numpy_scalars_are_scalars() -> None:
    method = _scalars()
    x = np.ones((2, 3), np.float32)
    results = method.execute([x, np.int64(2), np.bool_(True), np.float32(0.5), "fast", None])
    assert results[1:] == [2, True, 0.5, None]
    with pytest.raises(pteron.InputError, match="does not fit 64 bits"):
        method.execute([x, np.uint64(2**63), True, 0.5, "fast", None])
    with pytest.raises(pteron.InputError, match="fixed in the program"):
        method.execute([x, 2, np.bool_(False), 0.5, "fast", None])


def test_computed_scalars_have_no_value() -> None:
    m = MethodBuilder()
    a = m.input(m.int(2), "a")
    m.ranges[a] = [0, 10]
    three, larger, half = m.int(3), m.bool(False), m.double(0.0)
    m.call("executorch_prim::gt.Scalar", [a, three, larger])
    m.call("executorch_prim::truediv.Scalar", [a, three, half])
    fixed = m.bool(True)
    for value in (larger, half, fixed):
        m.output(value)
    method = pteron.load(build(m)).load_method()
    assert [spec.value for spec in method.outputs] == [None, None, True]
    assert "-> bool, float, bool (always true)" in repr(method)
    assert method.execute([6])[:1] == [True]
