"""Kernels of custom operators written in Python: what they get, what they may return, how they fail."""

from __future__ import annotations

import gc
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import pteron
from tests.support.programs import MethodBuilder, build, schema

X = np.arange(6, dtype=np.float32).reshape(2, 3)
Kernel = Callable[..., Any]


def _with(kernel: Kernel | None, name: str = "t::op", **options: Any) -> pteron.Runtime:
    runtime = pteron.Runtime()
    if kernel is not None:
        pteron.register_kernel(name, kernel, runtime=runtime, **options)
    return runtime


def _unary(shape: list[int] | None = None, dtype: str = "float32", **tensor: Any) -> bytes:
    """y = op(x) with `y` of `shape`, between two sums, so that kernels of the runtime stand on both sides."""
    shape = [2, 3] if shape is None else shape
    m = MethodBuilder()
    x, doubled = m.input(m.tensor([2, 3], planned=False)), m.tensor([2, 3])
    m.add(x, x, doubled)
    made = m.tensor(shape, dtype, **tensor)
    m.call("t::op.out", [doubled, made, made])
    m.output(made)
    return build(m)


def _loaded(program: bytes, kernel: Kernel | None, **options: Any) -> pteron.Method:
    return pteron.load(program, runtime=_with(kernel, **options)).load_method()


def _failure(program: bytes, kernel: Kernel, *inputs: Any, **options: Any) -> pteron.KernelError:
    method = _loaded(program, kernel, **options)
    with pytest.raises(pteron.KernelError) as caught:
        method(*(inputs or (X,)))
    assert "operator t::op.out" in str(caught.value)
    assert caught.value.operator == "t::op.out"
    return caught.value


def test_a_function_of_arrays_is_a_kernel() -> None:
    seen: list[Any] = []

    def kernel(x: Any) -> Any:
        seen.append((type(x), x.dtype, x.shape, x.flags.writeable))
        return x + 1

    method = _loaded(_unary(), kernel)
    for _ in range(2):
        np.testing.assert_array_equal(method(X), 2 * X + 1)
    assert seen == [(np.ndarray, np.dtype("float32"), (2, 3), False)] * 2
    assert method.inputs[0].name


@pytest.mark.parametrize("name", ["t::op", "t::op.default", "t::op.out"])
def test_all_names_of_an_operator_reach_its_calls(name: str) -> None:
    runtime = _with(lambda x: x, name)
    assert "t::op.out" in runtime.operators
    np.testing.assert_array_equal(pteron.load(_unary(), runtime=runtime).run("forward", X), 2 * X)


def test_an_overload_is_called_by_its_out_variant() -> None:
    assert {"t::op.Tensor", "t::op.Tensor_out"} <= set(_with(lambda x: x, "t::op.Tensor").operators)


def test_arguments_of_all_kinds() -> None:
    m = MethodBuilder()
    x = m.input(m.tensor([2], planned=False))
    n = m.input(m.int(3), "n", [0, 9])
    tensors = m.value(schema.TensorList([x, x]))
    optional = m.value(schema.OptionalTensorList([-1, x]))
    doubles = m.value(schema.DoubleList([0.5, 1.5]))
    bools = m.value(schema.BoolList([True, False]))
    sizes = m.value(schema.IntList([n, m.int(7)]))
    out = m.output(m.tensor([2]))
    given = [
        x,
        n,
        m.double(0.25),
        m.bool(True),
        m.string("mode"),
        m.none(),
        sizes,
        doubles,
        bools,
        tensors,
        optional,
    ]
    m.call("t::op.out", [*given, out, out])
    seen: list[Any] = []

    def kernel(*args: Any) -> Any:
        seen.extend(np.array(a) if isinstance(a, np.ndarray) else a for a in args[:9])
        seen.append([item.tolist() for item in args[9]])
        seen.append([None if item is None else item.tolist() for item in args[10]])
        return np.zeros(2, np.float32)

    _loaded(build(m), kernel)(np.array([1, 2], np.float32), 5)
    assert seen[0].tolist() == [1, 2]
    assert seen[1:6] == [5, 0.25, True, "mode", None]
    assert [type(value) for value in seen[1:4]] == [int, float, bool]
    assert seen[6:] == [[5, 7], [0.5, 1.5], [True, False], [[1.0, 2.0]] * 2, [None, [1.0, 2.0]]]


@pytest.mark.parametrize("kind", [tuple, list])
def test_several_results(kind: type) -> None:
    m = MethodBuilder()
    x = m.input(m.tensor([2, 3], planned=False))
    low, high = m.output(m.tensor([3])), m.output(m.tensor([2, 1], "float64"))
    m.call("t::op.out", [x, low, high, m.value(schema.TensorList([low, high]))])
    method = _loaded(build(m), lambda x: kind((x[0], x[:, :1].astype("float64"))))
    low_got, high_got = method(X)
    np.testing.assert_array_equal(low_got, X[0])
    np.testing.assert_array_equal(high_got, X[:, :1])


def test_a_list_of_results() -> None:
    m = MethodBuilder()
    x = m.input(m.tensor([2, 3], planned=False))
    rows = [m.output(m.tensor([3])) for _ in range(2)]
    listed = m.value(schema.TensorList(rows))
    m.call("t::op.out", [x, listed, m.value(schema.TensorList(rows))])
    got = _loaded(build(m), lambda x: list(x))(X)
    assert [row.tolist() for row in got] == X.tolist()


RESULTS = {
    "its own input": lambda x: x,
    "a view of its input": lambda x: x[::-1],
    "columns of it": lambda x: np.asfortranarray(x + 1),
    "a torch tensor": lambda x: torch.tensor(x + 1),
    "every other element": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "one row for all": lambda x: np.broadcast_to(x[0], (2, 3)),
    "a list of one": lambda x: [x * 2],
}


@pytest.mark.parametrize("what", RESULTS)
def test_results_are_copied(what: str) -> None:
    kernel = RESULTS[what]
    method = _loaded(_unary(), kernel)
    expected = kernel(2 * X)
    expected = expected[0] if isinstance(expected, list) else expected
    for _ in range(2):
        np.testing.assert_array_equal(method(X), np.asarray(expected))


def test_a_result_takes_the_memory_order_of_the_program() -> None:
    method = _loaded(_unary([2, 3], dim_order=[1, 0]), lambda x: x + 1)
    np.testing.assert_array_equal(method(X), 2 * X + 1)


def test_a_result_may_be_the_very_memory_of_the_output() -> None:
    m = MethodBuilder()
    x, y = m.input(m.tensor([2, 3], planned=False)), m.tensor([2, 3], planned=False)
    m.call("t::op.out", [x, y, y])
    m.output(y)
    memory = np.arange(6, dtype=np.float32).reshape(2, 3)
    method = _loaded(build(m), lambda x: memory[::-1])
    method.execute([X], outputs=[memory])
    assert memory.tolist() == X[::-1].tolist()


WRONG = {
    "dtype": (
        lambda x: x.astype("float64"),
        "another element type",
        r"expected float32\[2, 3\]; got float64\[2, 3\]",
    ),
    "shape": (lambda x: x.T, "another shape", r"expected float32\[2, 3\]; got float32\[3, 2\]"),
    "rank": (lambda x: x[0], "another shape", r"got float32\[3\]"),
    "fewer": (lambda x: x[:1], "another shape", r"got float32\[1, 3\]"),
    "count": (
        lambda x: (x, x),
        "another number of results",
        "expected a list or tuple of 1 arrays; got tuple of 2",
    ),
    "nothing": (lambda x: None, "no array", "got NoneType"),
    "a number": (lambda x: 1.0, "no array", "got float"),
    "objects": (lambda x: np.array([object()]), "no array", "'O'"),
    "a str": (lambda x: "x", "no array", "got str"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_result_that_the_program_did_not_plan_is_an_error(what: str) -> None:
    kernel, message, detail = WRONG[what]
    error = _failure(_unary(), kernel)
    assert message in str(error)
    assert re.search(detail, str(error)), str(error)


def test_the_shape_of_a_call_is_within_the_bound() -> None:
    program = _unary([4, 3], dynamic=True)
    counts = iter([1, 4, 0, 2])
    method = _loaded(program, lambda x: np.ones((next(counts), 3), np.float32))
    assert [method(X).shape for _ in range(4)] == [(1, 3), (4, 3), (0, 3), (2, 3)]
    for shape in [(5, 3), (3, 4), (2,), (2, 3, 1)]:
        error = _failure(program, lambda x, shape=shape: np.ones(shape, np.float32))
        assert "another shape" in str(error)
        assert "float32[4, 3]" in str(error)


def test_what_a_kernel_raises_is_the_cause() -> None:
    def kernel(x: Any) -> Any:
        raise LookupError("no such row")

    error = _failure(_unary(), kernel)
    assert "the kernel raised LookupError: no such row" in str(error)
    assert isinstance(error.__cause__, LookupError)
    assert error.instruction == 1
    method = _loaded(_unary(), lambda x: x if calls.pop() else 1 / 0)
    calls = [True, False]
    with pytest.raises(pteron.KernelError, match="ZeroDivisionError"):
        method(X)
    np.testing.assert_array_equal(method(X), 2 * X)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_what_asks_the_process_to_stop_passes(kind: type[BaseException]) -> None:
    def kernel(x: Any) -> Any:
        raise kind

    with pytest.raises(kind):
        _loaded(_unary(), kernel)(X)


def test_an_argument_that_is_kept_is_an_error_and_never_freed() -> None:
    kept: list[Any] = []

    def kernel(x: Any) -> Any:
        kept.append(x[:1])
        return x

    method = _loaded(_unary(), kernel)
    with pytest.raises(pteron.KernelError, match="a kernel kept an argument beyond its call") as caught:
        method(X)
    assert "input 0" in str(caught.value)
    with pytest.raises(pteron.DelegateError, match="load the method again"):
        method(X)
    del method
    gc.collect()
    assert kept[0].tolist() == (2 * X[:1]).tolist()


def test_a_traceback_does_not_count_as_keeping() -> None:
    def kernel(x: Any) -> Any:
        view = x[0]
        raise ValueError(view.shape)

    method = _loaded(_unary(), kernel)
    for _ in range(2):
        with pytest.raises(pteron.KernelError, match="ValueError"):
            method(X)


def test_a_kernel_may_run_programs() -> None:
    runtime = _with(lambda x: inner(x))
    m = MethodBuilder()
    x, y = m.input(m.tensor([2, 3], planned=False)), m.output(m.tensor([2, 3]))
    m.add(x, x, y)
    inner = pteron.load(build(m), runtime=runtime).load_method()
    method = pteron.load(_unary(), runtime=runtime).load_method()
    np.testing.assert_array_equal(method(X), 4 * X)


def test_a_kernel_that_calls_its_own_method_ends() -> None:
    runtime = _with(lambda x: method(x))
    method = pteron.load(_unary(), runtime=runtime).load_method()
    with pytest.raises(pteron.KernelError) as caught:
        method(X)
    assert isinstance(caught.value.__cause__, pteron.MethodBusy)


def test_threads() -> None:
    barrier = threading.Barrier(3)

    def kernel(x: Any) -> Any:
        barrier.wait(30)
        return x + threading.get_ident() % 7

    program = pteron.load(_unary(), runtime=_with(kernel))
    got: list[bool] = []

    def work() -> None:
        mine = 2 * X + threading.get_ident() % 7
        got.extend(np.array_equal(program.run("forward", X), mine) for _ in range(5))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [True] * 15


def test_a_deadline_ends_the_call_behind_the_kernel() -> None:
    m = MethodBuilder()
    x, made, y = m.input(m.tensor([2, 3], planned=False)), m.tensor([2, 3]), m.output(m.tensor([2, 3]))
    m.call("t::op.out", [x, made, made])
    m.add(made, made, y)

    def kernel(x: Any) -> Any:
        end = time.monotonic() + 0.05
        while time.monotonic() < end:
            pass
        return x

    method = _loaded(build(m), kernel)
    with pytest.raises(pteron.DeadlineExceeded):
        method.execute([X], deadline=0.01)
    np.testing.assert_array_equal(method(X), 2 * X)


def test_a_name_that_is_taken_needs_replace() -> None:
    runtime = _with(lambda x: x + 1)
    program = pteron.load(_unary(), runtime=runtime)
    method = program.load_method()
    with pytest.raises(pteron.KernelError, match=r"has a kernel already.*replace=True"):
        pteron.register_kernel("t::op", lambda x: x, runtime=runtime)
    pteron.register_kernel("t::op", lambda x: x + 2, runtime=runtime, replace=True)
    # What is loaded keeps its kernel, and so do later sessions of the same program.
    np.testing.assert_array_equal(method(X), 2 * X + 1)
    np.testing.assert_array_equal(program.load_method()(X), 2 * X + 1)
    np.testing.assert_array_equal(pteron.load(_unary(), runtime=runtime).run("forward", X), 2 * X + 2)


def test_what_cannot_be_registered() -> None:
    runtime = pteron.Runtime()
    with pytest.raises(TypeError, match="cannot be called"):
        pteron.register_kernel("t::op", 3, runtime=runtime)  # type: ignore[arg-type]
    for name in ["", "op", "t::op(Tensor x) -> Tensor"]:
        with pytest.raises(pteron.InputError, match="under this name"):
            pteron.register_kernel(name, lambda x: x, runtime=runtime)
    for replace in (False, True):
        with pytest.raises(pteron.KernelError, match="computes itself"):
            pteron.register_kernel("aten::add", lambda x: x, runtime=runtime, replace=replace)


def test_a_missing_kernel_is_named_with_what_brings_one() -> None:
    program = pteron.load(_unary(), runtime=pteron.Runtime())
    with pytest.raises(pteron.MissingOperatorError) as caught:
        program.load_method()
    for part in ["t::op.out (instruction 1)", "pteron.register_kernel('t::op', function)"]:
        assert part in str(caught.value)
    # The program is as good as before: once there is a kernel, it loads.
    runtime = pteron.Runtime()
    program = pteron.load(_unary(), runtime=runtime)
    with pytest.raises(pteron.MissingOperatorError):
        program.load_method()
    pteron.register_kernel("t::op", lambda x: x, runtime=runtime)
    np.testing.assert_array_equal(program.load_method()(X), 2 * X)


def test_a_call_that_does_not_say_what_it_writes_is_refused() -> None:
    m = MethodBuilder()
    x, y = m.input(m.tensor([2], planned=False)), m.output(m.tensor([2]))
    m.call("t::op.out", [x, y])
    with pytest.raises(pteron.ProgramError, match="does not say what it writes"):
        _loaded(build(m), lambda x: x)


def test_a_kernel_may_write_its_outputs() -> None:
    def kernel(x: Any, out: Any) -> None:
        assert isinstance(out, pteron.Tensor)
        out.resize((1, 3))
        np.copyto(np.asarray(out), x[1:])

    method = _loaded(_unary([4, 3], dynamic=True), kernel, writes_outputs=True)
    assert method(X).tolist() == (2 * X[1:]).tolist()
    error = _failure(_unary(), lambda x, out: x, writes_outputs=True)
    assert "gave a value back" in str(error)


def test_element_types_that_numpy_lacks_come_as_what_delegates_get() -> None:
    seen: list[Any] = []

    def kernel(x: Any) -> Any:
        seen.append(x)
        given = torch.from_dlpack(x) if isinstance(x, pteron.Tensor) else torch.tensor(np.float32(x))
        seen[:] = [type(x)]
        return (given.float() + 1).bfloat16()

    m = MethodBuilder()
    x = m.input(m.tensor([3], "bfloat16", planned=False))
    y = m.output(m.tensor([3], "bfloat16"))
    m.call("t::op.out", [x, y, y])
    got = _loaded(build(m), kernel)(torch.tensor([1, 2, 3], dtype=torch.bfloat16))
    assert torch.as_tensor(got).float().tolist() == [2, 3, 4]
    assert seen[0] in (np.ndarray, pteron.Tensor)
