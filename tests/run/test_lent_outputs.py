"""`execute(copy=False)`: outputs lent where the method computed them, and what that keeps from happening."""

from __future__ import annotations

import gc
import threading
import time

import numpy as np
import pytest

import pteron
from tests.support.programs import MethodBuilder, add_method, build, counter_method

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def add() -> pteron.Method:
    return pteron.load(build(add_method())).load_method()


def _address(tensor: pteron.Tensor) -> int:
    return int(np.asarray(tensor).__array_interface__["data"][0])


def test_a_lent_output_is_read_only_and_ends_with_the_next_call(add: pteron.Method) -> None:
    (lent,) = add.execute([X, X], copy=False)
    assert isinstance(lent, pteron.Tensor)
    assert not lent.writable
    np.testing.assert_array_equal(np.asarray(lent), 2 * X)
    np.testing.assert_array_equal(np.from_dlpack(lent), 2 * X)
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(lent)[0, 0] = 1
    with pytest.raises(BufferError, match="read-only"):
        lent.__dlpack__()  # a legacy capsule cannot say that it is
    gc.collect()
    first = _address(lent)
    (again,) = add.execute([X, X + 1], copy=False)
    assert _address(again) == first  # the same memory, not a copy of it
    assert not lent.valid
    assert again.valid
    for look in (np.asarray, memoryview, np.from_dlpack, pteron.Tensor.tobytes):
        with pytest.raises(BufferError, match="lent by a method"):
            look(lent)
    np.testing.assert_array_equal(np.asarray(again), 2 * X + 1)


@pytest.mark.parametrize("way", ["array", "view of an array", "memoryview", "dlpack"])
def test_while_an_export_lives_the_method_is_not_used_again(add: pteron.Method, way: str) -> None:
    (lent,) = add.execute([X, X], copy=False)
    export = {
        "array": np.asarray,
        "view of an array": lambda t: np.asarray(t)[1:, ::2],
        "memoryview": memoryview,
        "dlpack": np.from_dlpack,
    }[way](lent)
    kept = np.array(export)
    refused = [
        lambda: add(X, X + 1),
        lambda: add.execute([X, X + 1], copy=False),
        lambda: add.execute([X, X + 1], outputs=[np.empty_like(X)]),
        lambda: add.set_state({}),
        add.reset_state,
    ]
    for use in refused:
        with pytest.raises(pteron.OutputsInUseError, match=r"output 0.*copy=True") as caught:
            use()
    assert caught.value.method == "forward"
    np.testing.assert_array_equal(np.array(export), kept)
    # Refused before anything happened: the tensor itself is as good as before.
    assert lent.valid
    add.get_state()
    del export, caught
    gc.collect()
    np.testing.assert_array_equal(add(X, X + 1), 2 * X + 1)


def test_a_lent_output_given_back_as_an_input_is_in_use(add: pteron.Method) -> None:
    (lent,) = add.execute([X, X], copy=False)
    with pytest.raises(pteron.OutputsInUseError):
        add(lent, X)
    np.testing.assert_array_equal(add(np.array(lent), X), 3 * X)


def test_exports_outlive_the_method_and_the_program() -> None:
    method = pteron.load(build(add_method())).load_method()
    (lent,) = method.execute([X, X], copy=False)
    view = np.asarray(lent)[1]
    del method, lent
    gc.collect()
    trash = [np.full((2, 3), i, np.float32) for i in range(200)]
    np.testing.assert_array_equal(view, 2 * X[1])
    assert len(trash) == 200


def test_lent_state_is_the_state_itself_and_cannot_change_under_a_look() -> None:
    method = pteron.load(build(counter_method())).load_method()
    one = np.ones(2, np.float32)
    (lent,) = method.execute([one], copy=False)
    look = np.asarray(lent)
    np.testing.assert_array_equal(look, [11, 21])
    with pytest.raises(pteron.OutputsInUseError):
        method.set_state({"total": np.zeros(2, np.float32)})
    with pytest.raises(pteron.OutputsInUseError):
        method.reset_state()
    np.testing.assert_array_equal(look, [11, 21])
    np.testing.assert_array_equal(method.get_state()["total"], [11, 21])
    del look
    method.reset_state()
    assert not lent.valid
    np.testing.assert_array_equal(method(one), [11, 21])


def test_reset_zeroes_memory_that_was_lent() -> None:
    # `t` has no initial value in the file: it starts at zero, also after a reset with the tensor still there.
    m = MethodBuilder()
    x, t, y = m.input(m.tensor([2]), "x"), m.tensor([2]), m.tensor([2])
    m.add(x, t, y)
    m.call("aten::copy_", [t, y, m.bool(False), t])
    m.outputs.append(y)
    method = pteron.load(build(m)).load_method()
    one = np.ones(2, np.float32)
    (lent,) = method.execute([one], copy=False)
    np.testing.assert_array_equal(method(one), [2, 2])
    (lent,) = method.execute([one], copy=False)
    method.reset_state()
    assert not lent.valid
    np.testing.assert_array_equal(method(one), [1, 1])


def test_outputs_that_lie_elsewhere_are_owned_tensors() -> None:
    # Unplanned memory is made for the call, a constant and an input are copied.
    m = MethodBuilder()
    x = m.input(m.tensor([2, 3], planned=False), "x")
    fresh = m.output(m.tensor([2, 3], planned=False))
    m.add(x, x, fresh)
    m.outputs.append(m.constant(X))
    m.outputs.append(x)
    method = pteron.load(build(m)).load_method()
    results = method.execute([X], copy=False)
    views = [np.asarray(r) for r in results]
    for _ in range(2):
        method(X + 1)
    for view, expected in zip(views, (2 * X, X, X), strict=True):
        np.testing.assert_array_equal(view, expected)
    assert all(r.valid and r.writable for r in results)


def test_bound_outputs_stay_bound_and_scalars_stay_scalars() -> None:
    m = MethodBuilder()
    x = m.input(m.tensor([2, 3]), "x")
    one, two = m.output(m.tensor([2, 3])), m.output(m.tensor([2, 3]))
    m.add(x, x, one)
    m.add(one, x, two)
    method = pteron.load(build(m)).load_method()
    target = np.empty((2, 3), np.float32)
    bound, lent = method.execute([X], outputs=[target, None], copy=False)
    assert bound is target
    np.testing.assert_array_equal(target, 2 * X)
    np.testing.assert_array_equal(np.asarray(lent), 3 * X)


def test_lent_tensors_of_other_orders_ranks_and_dtypes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    order = [0, 2, 3, 1]
    m = MethodBuilder()
    x = m.input(m.tensor([1, 3, 4, 5], dim_order=order), "x")
    m.add(x, x, m.output(m.tensor([1, 3, 4, 5], dim_order=order)))
    given = np.random.default_rng(0).random((1, 3, 4, 5), dtype=np.float32)
    (lent,) = pteron.load(build(m)).load_method().execute([given], copy=False)
    assert lent.strides == (60, 1, 15, 3)
    np.testing.assert_array_equal(np.asarray(lent), 2 * given)
    cases: list[tuple[list[int], str, object]] = [
        ([], "float32", np.float32),
        ([0, 3], "float32", np.float32),
        ([5], "bfloat16", ml_dtypes.bfloat16),
    ]
    for shape, dtype, scalar in cases:
        m = MethodBuilder()
        x = m.input(m.tensor(shape, dtype=dtype), "x")
        m.add(x, x, m.output(m.tensor(shape, dtype=dtype)))
        values = np.full(shape, 1.5).astype(scalar)  # type: ignore[arg-type]
        (lent,) = pteron.load(build(m)).load_method().execute([values], copy=False)
        got = np.asarray(lent)
        assert got.dtype == values.dtype
        assert got.shape == tuple(shape)
        np.testing.assert_array_equal(got.astype(np.float64), np.full(shape, 3.0))


def test_a_look_from_another_thread_holds_the_method_up_or_is_refused(add: pteron.Method) -> None:
    # Whoever is first wins; neither sees bytes of another call.
    stop, dropped = threading.Event(), threading.Event()
    lent: list[pteron.Tensor] = []
    wrong: list[np.ndarray] = []

    def look() -> None:
        while not stop.is_set():
            tensor = lent[0]
            try:
                array = np.asarray(tensor)
            except BufferError:
                continue
            base = array[0, 0]
            if not np.array_equal(array, np.broadcast_to(base, (2, 3))):
                wrong.append(array.copy())
            del array
            dropped.set()

    ones = np.ones((2, 3), np.float32)
    worker = threading.Thread(target=look)
    lent.extend(add.execute([ones, ones], copy=False))
    worker.start()
    done = 0
    end = time.monotonic() + 60
    while done < 200 and time.monotonic() < end:
        dropped.clear()
        try:
            lent[0] = add.execute([ones * done, ones], copy=False)[0]
            done += 1
        except pteron.OutputsInUseError:
            dropped.wait(1)
    stop.set()
    worker.join()
    assert not wrong
    assert done == 200


def test_copy_is_a_bool(add: pteron.Method) -> None:
    with pytest.raises(pteron.InputTypeError, match="copy"):
        add.execute([X, X], copy=0)  # type: ignore[arg-type]
