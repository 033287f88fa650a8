"""What comes out: fresh memory that outlives everything, or memory of the caller."""

from __future__ import annotations

import gc
import itertools
import weakref

import numpy as np
import pytest

import pteron
from tests.support.programs import MethodBuilder, add_method, build, dynamic_add_method

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_results_own_their_memory() -> None:
    program = pteron.load(build(add_method()))
    method = program.load_method()
    first = method(X, X)
    kept = first.copy()
    for i in range(20):
        method(X + i, X)
    np.testing.assert_array_equal(first, kept)
    assert first.flags.writeable
    assert first.flags.aligned
    first[...] = 7
    np.testing.assert_array_equal(method(X, X), kept)
    row = first[1]
    del method, program, first
    gc.collect()
    blocks = [np.full((2, 3), i, dtype=np.float32) for i in range(100)]
    np.testing.assert_array_equal(row, [7, 7, 7])
    assert len(blocks) == 100


#: So much that outputs are computed in the memory that the caller gets.
LARGE = (256, 128)


def test_large_results_are_computed_where_the_caller_has_them() -> None:
    """Memory that is dropped serves a later call; what the caller still has is never written again."""
    method = pteron.load(build(add_method(shape=LARGE))).load_method()
    zeros, kept = np.zeros(LARGE, np.float32), []
    for i in range(12):
        x = np.full(LARGE, i, np.float32)
        result = method(x, zeros)
        assert (result == i).all()
        if i % 3 == 0:
            kept.append((i, result))
    for i, result in kept:
        assert (result == i).all()
    assert len({result.ctypes.data for _, result in kept}) == len(kept)
    # An output as the next input.
    x = np.ones(LARGE, np.float32)
    for _ in range(5):
        x = method(x, x)
    assert (x == 32).all()
    del method
    gc.collect()
    x += 1
    assert (x == 33).all()


def test_large_results_in_memory_of_the_caller_and_in_their_own() -> None:
    method = pteron.load(build(add_method(shape=LARGE))).load_method()
    x, target = np.ones(LARGE, np.float32), np.zeros(LARGE, np.float32)
    own = method(x, x)
    (bound,) = method.execute([x, 2 * x], outputs=[target])
    (lent,) = method.execute([x, 3 * x], copy=False)
    assert (np.asarray(lent) == 4).all()
    del lent
    assert bound is target
    assert (target == 3).all()
    assert (own == 2).all()
    # Two sessions take turns with results of each other.
    other = pteron.load(build(add_method(shape=LARGE))).load_method()
    for _ in range(4):
        own = other(method(own, x), x)
    assert (own == 10).all()


def test_large_dynamic_results_of_few_rows() -> None:
    method = pteron.load(build(dynamic_add_method((1, 4096), 64))).load_method()
    kept = []
    for rows in (4096, 3, 2100, 4096, 1, 2047, 4096):
        x = np.full((rows, 64), rows, np.float32)
        kept.append((rows, method(x, x)))
    for rows, result in kept:
        assert result.shape == (rows, 64)
        assert (result == 2 * rows).all()


def test_bytes_of_the_program_stay_while_anything_needs_them() -> None:
    m = MethodBuilder()
    x = m.input(m.tensor([1000]), "x")
    out = m.output(m.tensor([1000]))
    m.add(x, m.constant(np.arange(1000, dtype=np.float32)), out)
    data = build(m)
    method = pteron.load(data).load_method()
    del data
    gc.collect()
    trash = [bytes([i]) * 5000 for i in range(100)]
    np.testing.assert_array_equal(method(np.zeros(1000, np.float32)), np.arange(1000))
    assert trash


def test_other_memory_orders_come_out_with_their_strides() -> None:
    m = MethodBuilder()
    order = [0, 2, 3, 1]
    x = m.input(m.tensor([1, 3, 4, 5], dim_order=order), "x")
    out = m.output(m.tensor([1, 3, 4, 5], dim_order=order))
    m.add(x, x, out)
    method = pteron.load(build(m)).load_method()
    given = np.random.default_rng(0).random((1, 3, 4, 5), dtype=np.float32)
    result = method(given)
    np.testing.assert_array_equal(result, 2 * given)
    assert result.strides == (240, 4, 60, 12)
    assert method.outputs[0].dim_order == (0, 2, 3, 1)


def test_outputs_into_memory_of_the_caller() -> None:
    method = pteron.load(build(add_method())).load_method()
    target = np.zeros((2, 3), dtype=np.float32)
    (result,) = method.execute([X, X], outputs=[target])
    assert result is target
    np.testing.assert_array_equal(target, 2 * X)
    (fresh,) = method.execute([X, X], outputs=[None])
    np.testing.assert_array_equal(fresh, 2 * X)
    assert fresh is not target


def test_an_input_may_be_the_output_as_well() -> None:
    method = pteron.load(build(add_method())).load_method()
    both = X.copy()
    method.execute([both, X], outputs=[both])
    np.testing.assert_array_equal(both, 2 * X)


def _unplanned(count: int = 1, dim_order: list[int] | None = None) -> pteron.Method:
    """`x + y`, `count` times shown, whose inputs and output have no place in the memory plan."""
    m = MethodBuilder()
    x, y = (m.input(m.tensor([2, 3], planned=False, dim_order=dim_order)) for _ in range(2))
    out = m.tensor([2, 3], planned=False, dim_order=dim_order)
    for _ in range(count):
        m.output(out)
    m.add(x, y, out)
    return pteron.load(build(m)).load_method()


def test_unplanned_outputs_into_memory_of_the_caller() -> None:
    method = _unplanned()
    target = np.full((2, 3), 7, dtype=np.float32)
    for _ in range(2):
        (result,) = method.execute([X, X], outputs=[target])
        assert result is target
        np.testing.assert_array_equal(target, 2 * X)
    fresh = method.execute([X, 3 * X])[0]
    np.testing.assert_array_equal(fresh, 4 * X)
    np.testing.assert_array_equal(target, 2 * X)


def test_an_unplanned_output_may_lie_over_an_input() -> None:
    method = _unplanned()
    memory = np.arange(10, dtype=np.float32)
    given = memory[:6].copy()
    method.execute([memory[:6].reshape(2, 3), X], outputs=[memory[:6].reshape(2, 3)])
    np.testing.assert_array_equal(memory[:6].reshape(2, 3), given.reshape(2, 3) + X)
    given = memory.copy()
    method.execute([memory[8:2:-1].reshape(2, 3), X], outputs=[memory[4:].reshape(2, 3)])
    np.testing.assert_array_equal(memory[4:].reshape(2, 3), given[8:2:-1].reshape(2, 3) + X)
    np.testing.assert_array_equal(memory[:4], given[:4])


def test_an_unplanned_output_in_several_places_and_orders() -> None:
    method = _unplanned(3)
    first, last = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32)
    results = method.execute([X, X], outputs=[first, None, last])
    for result in [first, last, *results]:
        np.testing.assert_array_equal(result, 2 * X)
    target = np.zeros((2, 3), np.float32)
    _unplanned(dim_order=[1, 0]).execute([X, X], outputs=[target])
    np.testing.assert_array_equal(target, 2 * X)
    unaligned = np.zeros(25, np.uint8)[1:].view(np.float32).reshape(2, 3)
    method.execute([X, X], outputs=[unaligned, None, None])
    np.testing.assert_array_equal(unaligned, 2 * X)


def _swapped() -> pteron.Method:
    """`(y, x, x + y)` of unplanned `x` and `y`: two outputs show what the caller gave."""
    m = MethodBuilder()
    x, y = (m.input(m.tensor([2, 3], planned=False)) for _ in range(2))
    out = m.tensor([2, 3], planned=False)
    m.add(x, y, out)
    for value in (y, x, out):
        m.output(value)
    return pteron.load(build(m)).load_method()


@pytest.mark.parametrize("bound", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)])
def test_outputs_that_are_inputs_survive_other_outputs_over_them(bound: tuple[int, ...]) -> None:
    method = _swapped()
    rng = np.random.default_rng(0)
    for places in itertools.permutations(range(3), len(bound)):
        # Inputs at 0 and 1; each bound output over one of them or beside both.
        memory = rng.random((3, 2, 3), dtype=np.float32)
        x, y = memory[0].copy(), memory[1].copy()
        outputs: list[np.ndarray | None] = [None] * 3
        for output, place in zip(bound, places, strict=True):
            outputs[output] = memory[place]
        results = method.execute([memory[0], memory[1]], outputs=outputs)
        for result, want in zip(results, [y, x, x + y], strict=True):
            np.testing.assert_array_equal(result, want, err_msg=f"{places}")


def _passed_on(count: int, dim_order: list[int] | None = None) -> pteron.Method:
    """An unplanned input, given back `count` times."""
    m = MethodBuilder()
    x = m.input(m.tensor([2, 3], planned=False, dim_order=dim_order))
    m.add(x, x, m.tensor([2, 3], dim_order=dim_order))
    for _ in range(count):
        m.output(x)
    return pteron.load(build(m)).load_method()


@pytest.mark.parametrize("shift", [-1, 0, 1, 3])
def test_an_input_given_back_twice_survives_a_buffer_across_it(shift: int) -> None:
    method = _passed_on(2)
    memory = np.arange(20, dtype=np.float32)
    given, target = memory[6:12].reshape(2, 3), memory[6 + shift : 12 + shift].reshape(2, 3)
    want = given.copy()
    for result in method.execute([given], outputs=[target, None]):
        np.testing.assert_array_equal(result, want)


def test_an_input_in_another_order_is_given_back_row_major_in_its_own_memory() -> None:
    method = _passed_on(1, dim_order=[1, 0])
    memory = np.arange(6, dtype=np.float32)
    given = memory.reshape(3, 2).T
    want = given.copy()
    method.execute([given], outputs=[memory.reshape(2, 3)])
    np.testing.assert_array_equal(memory.reshape(2, 3), want)


def test_memory_between_the_fields_of_records_is_no_output() -> None:
    # Strides of 5 bytes, which whole elements of 4 do not make.
    records = np.zeros((2, 3), [("a", "f4"), ("b", "i1")])
    records["b"] = 7
    method = pteron.load(build(add_method())).load_method()
    with pytest.raises(pteron.InputError, match="dense and row-major"):
        method.execute([X, X], outputs=[records["a"]])
    assert (records["a"] == 0).all()
    # An extent of one has no stride that matters.
    pteron.load(build(add_method((1,)))).load_method().execute([X[0, 1:2]] * 2, outputs=[records["a"][0, :1]])
    assert records["a"][0].tolist() == [2, 0, 0]
    assert (records["b"] == 7).all()


def test_dtypes_that_buffers_cannot_name_are_outputs_too() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    m = MethodBuilder()
    x = m.input(m.tensor([2, 3], "bfloat16"))
    out = m.output(m.tensor([2, 3], "bfloat16"))
    m.call("aten::clone.out", [x, m.none(), out, out])
    method = pteron.load(build(m)).load_method()
    given = X.astype(ml_dtypes.bfloat16)
    target = np.zeros_like(given)
    (result,) = method.execute([given], outputs=[target])
    assert result is target
    np.testing.assert_array_equal(target, given)
    read_only = np.zeros_like(given)
    read_only.flags.writeable = False
    with pytest.raises(pteron.InputTypeError, match="cannot be written"):
        method.execute([given], outputs=[read_only])
    with pytest.raises(pteron.InputError, match="dense and row-major"):
        method.execute([given], outputs=[np.zeros((3, 2), given.dtype).T])


def _read_only() -> np.ndarray:
    a = np.zeros((2, 3), np.float32)
    a.flags.writeable = False
    return a


@pytest.mark.parametrize(
    ("target", "error", "text"),
    [
        (np.zeros((2, 4), np.float32), pteron.InputError, "output"),
        (np.zeros((2, 3), np.float64), pteron.InputTypeError, "float64"),
        (np.zeros((3, 2), np.float32).T, pteron.InputError, "dense and row-major"),
        (_read_only(), pteron.InputTypeError, "cannot be written"),
        ([0.0] * 6, pteron.InputTypeError, "got list"),
    ],
)
def test_wrong_output_memory(target: object, error: type[Exception], text: str) -> None:
    method = pteron.load(build(add_method())).load_method()
    with pytest.raises(error, match=text):
        method.execute([X, X], outputs=[target])
    with pytest.raises(pteron.InputError, match="wrong number of output buffers"):
        method.execute([X, X], outputs=[None, None])
    np.testing.assert_array_equal(method(X, X), 2 * X)


def test_dynamic_outputs_into_memory_of_the_caller() -> None:
    method = pteron.load(build(dynamic_add_method())).load_method()
    x = np.ones((4, 3), np.float32)
    target = np.zeros((4, 3), np.float32)
    method.execute([x, x], outputs=[target])
    np.testing.assert_array_equal(target, 2 * x)
    with pytest.raises(pteron.InputError):
        method.execute([x[:2], x[:2]], outputs=[target])


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1,), (2, 3), (1, 1, 4)])
def test_outputs_are_ordinary_arrays(shape: tuple[int, ...]) -> None:
    """Made through NumPy's C interface: flags, strides and base are those of an array that NumPy made."""
    method = pteron.load(build(add_method(shape=shape))).load_method()
    x = np.ones(shape, np.float32)
    result = method(x, x)
    ours, theirs = result.flags, np.ones(shape, np.float32).flags
    for flag in ["C_CONTIGUOUS", "F_CONTIGUOUS", "WRITEABLE", "ALIGNED", "WRITEBACKIFCOPY"]:
        assert ours[flag] == theirs[flag], flag
    assert (result.shape, result.dtype) == (shape, x.dtype)
    # NumPy itself gives empty arrays various strides.
    assert result.strides == x.strides or result.size == 0
    assert not ours.owndata
    result += 1
    np.testing.assert_array_equal(result.base.numpy(), np.full(shape, 3, np.float32))


def test_memory_is_freed_with_the_last_reference() -> None:
    method = pteron.load(build(add_method())).load_method()
    result = method(X, X)
    gone = weakref.ref(result)
    view = memoryview(result.base)
    base = result.base
    del result
    gc.collect()
    assert gone() is None
    assert view.tolist() == (2 * X).tolist()
    assert base.tobytes() == (2 * X).tobytes()
