"""State in files, and state that delegates own."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pteron
from pteron import _native
from tests.support.programs import MethodBuilder, build, counter_method, delegate_method

ONE = np.ones(2, np.float32)
X = np.ones((2, 3), np.float32)


def _counter() -> pteron.Method:
    return pteron.load(build(counter_method())).load_method()


def test_state_goes_through_a_file(tmp_path: Path) -> None:
    method, other = _counter(), _counter()
    method(ONE)
    method.save_state(tmp_path / "state.ptd")
    method(ONE)
    other.load_state(str(tmp_path / "state.ptd"))
    np.testing.assert_array_equal(other.get_state()["total"], [11, 21])
    np.testing.assert_array_equal(other(ONE), [12, 22])
    method.load_state(tmp_path / "state.ptd")
    np.testing.assert_array_equal(method(ONE), [12, 22])
    assert [p.name for p in tmp_path.iterdir()] == ["state.ptd"]
    listing = _native.data_listing((tmp_path / "state.ptd").read_bytes())
    assert "'total': float32[2]" in listing


def test_threads_that_save_to_one_path_leave_a_whole_file(tmp_path: Path) -> None:
    m = MethodBuilder()
    n = 50_000
    names = ["a", "b"]
    for name in names:
        m.state(name, np.zeros(n, np.float32))
    x = m.input(m.tensor([2]), "x")
    m.add(x, x, m.output(m.tensor([2])))
    program = pteron.load(build(m))
    path = tmp_path / "state.ptd"
    program.load_method().save_state(path)
    failures: list[BaseException] = []

    def save(value: int) -> None:
        try:
            method = program.load_method()
            method.set_state({name: np.full(n, value, np.float32) for name in names})
            for _ in range(30):
                method.save_state(path)
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=save, args=(i,)) for i in range(1, 4)]
    for thread in threads:
        thread.start()
    reader = program.load_method()
    while any(thread.is_alive() for thread in threads):
        reader.load_state(path)
        state = reader.get_state()
        assert len({float(v) for name in names for v in (state[name].min(), state[name].max())}) == 1
    for thread in threads:
        thread.join()
    assert not failures
    assert [p.name for p in tmp_path.iterdir()] == ["state.ptd"]


def test_a_state_file_behind_a_link_is_the_one_that_is_written(tmp_path: Path) -> None:
    method = _counter()
    (tmp_path / "real").mkdir()
    target = tmp_path / "real" / "state.ptd"
    method.save_state(target)
    link = tmp_path / "link.ptd"
    link.symlink_to(target)
    method(ONE)
    method.save_state(link)
    assert link.is_symlink()
    other = _counter()
    other.load_state(target)
    np.testing.assert_array_equal(other.get_state()["total"], [11, 21])


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(pteron.ExternalDataError, match="which is no file"):
        _counter().save_state(pipe)
    assert pipe.is_fifo()
    assert [p.name for p in tmp_path.iterdir()] == ["pipe"]


def test_a_method_without_state_has_an_empty_file(tmp_path: Path) -> None:
    m = MethodBuilder()
    x = m.input(m.tensor([2]), "x")
    m.add(x, x, m.output(m.tensor([2])))
    method = pteron.load(build(m)).load_method()
    method.save_state(tmp_path / "s.ptd")
    method.load_state(tmp_path / "s.ptd")
    with pytest.raises(pteron.ExternalDataError, match=r"'total'.*lacks a buffer"):
        _counter().load_state(tmp_path / "s.ptd")


def test_every_dtype_and_order_survives_a_file(tmp_path: Path) -> None:
    m = MethodBuilder()
    names = ["float64", "float16", "int64", "int8", "bool", "uint8"]
    rng = np.random.default_rng(0)
    initial = {name: rng.integers(0, 2, (2, 3)).astype(name) for name in names}
    for name, array in initial.items():
        m.state(name, array)
    x = m.input(m.tensor([2]), "x")
    m.add(x, x, m.output(m.tensor([2])))
    program = pteron.load(build(m))
    one, two = program.load_method(), program.load_method()
    changed = {name: (1 - array.astype(np.int64)).astype(array.dtype) for name, array in initial.items()}
    one.set_state(changed)
    one.save_state(tmp_path / "s.ptd")
    two.load_state(tmp_path / "s.ptd")
    state = two.get_state()
    for name, array in changed.items():
        np.testing.assert_array_equal(state[name], array)
        assert state[name].dtype == array.dtype


def test_wrong_files_change_nothing(tmp_path: Path) -> None:
    method = _counter()
    method.save_state(tmp_path / "good.ptd")
    good = (tmp_path / "good.ptd").read_bytes()
    path = tmp_path / "bad.ptd"
    for cut in range(0, len(good), 7):
        path.write_bytes(good[:cut])
        with pytest.raises(pteron.ExternalDataError):
            method.load_state(path)
    for at in range(0, len(good), 3):
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x55]) + good[at + 1 :])
        try:
            method.load_state(path)
        except pteron.PteronError:
            np.testing.assert_array_equal(method.get_state()["total"], [10, 20])
        method.reset_state()
    other = MethodBuilder()
    other.state("total", np.zeros(3, np.float32))
    x = other.input(other.tensor([2]), "x")
    other.add(x, x, other.output(other.tensor([2])))
    pteron.load(build(other)).load_method().save_state(path)
    with pytest.raises(pteron.InputError, match=r"another dtype or shape.*float32\[2\].*float32\[3\]"):
        method.load_state(path)
    with pytest.raises(FileNotFoundError):
        method.load_state(tmp_path / "nothing.ptd")
    with pytest.raises(FileNotFoundError):
        method.save_state(tmp_path / "nowhere" / "s.ptd")
    with pytest.raises(pteron.ExternalDataError, match="cannot be written"):
        method.save_state(tmp_path)
    np.testing.assert_array_equal(method.get_state()["total"], [10, 20])


class Counting:
    """Adds its inputs, and counts its calls."""

    num_outputs = 1

    def __init__(self) -> None:
        self.calls = np.zeros(1, np.int64)

    def execute(self, ctx: Any, inputs: Any, outputs: Any) -> None:
        self.calls += 1
        np.asarray(outputs[0])[...] = np.asarray(inputs[0]) + self.calls


class Stateful(Counting):
    """The same, with its state offered."""

    refuses = False

    def get_state(self) -> dict[str, np.ndarray]:
        return {"calls": self.calls}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        if self.refuses:
            raise ValueError("not now")
        self.calls = state["calls"]

    def reset_state(self) -> None:
        self.calls = np.zeros(1, np.int64)


class Backend:
    def __init__(self, make: Any) -> None:
        self.make = make

    def init(self, ctx: Any, processed: memoryview, specs: Any) -> Any:
        return self.make()


def _program(make: Any, *, owned: list[str] | None = None, own_state: bool = False) -> pteron.Program:
    m = delegate_method("Owner")
    if own_state:
        m.state("total", np.array([10.0, 20.0], np.float32))
    interface = m.interface()
    if owned is not None:
        interface["delegate_buffers"] = {"0": owned}
    m.interface = lambda: interface  # type: ignore[method-assign]
    runtime = pteron.Runtime()
    pteron.register_backend("Owner", Backend(make), runtime=runtime)
    return pteron.load(build(m), runtime=runtime)


def test_state_of_a_delegate_takes_part(tmp_path: Path) -> None:
    program = _program(Stateful, owned=["calls"], own_state=True)
    method, other = program.load_method(), program.load_method()
    np.testing.assert_array_equal(method(X, X), X + 1)
    np.testing.assert_array_equal(method(X, X), X + 2)
    state = method.get_state()
    assert {name: array.tolist() for name, array in state.items()} == {"total": [10, 20], "calls": [2]}
    state["calls"][...] = 40
    np.testing.assert_array_equal(method(X, X), X + 3)
    method.set_state(state)
    np.testing.assert_array_equal(method(X, X), X + 41)
    np.testing.assert_array_equal(other(X, X), X + 1)
    method.save_state(tmp_path / "s.ptd")
    other.load_state(tmp_path / "s.ptd")
    np.testing.assert_array_equal(other(X, X), X + 42)
    method.reset_state()
    np.testing.assert_array_equal(method(X, X), X + 1)


def test_state_of_a_delegate_is_checked_before_anything_is_set() -> None:
    method = _program(Stateful, own_state=True).load_method()
    total = np.zeros(2, np.float32)
    for bad in (np.zeros(2, np.int64), np.zeros(1, np.int32), np.zeros((1, 1), np.int64)):
        with pytest.raises(pteron.InputError, match=r"'calls'.*another dtype or shape.*int64\[1\]"):
            method.set_state({"total": total, "calls": bad})
    with pytest.raises(pteron.InputError, match="one of: total, calls"):
        method.set_state({"total": total, "other": total})
    np.testing.assert_array_equal(method.get_state()["total"], [10, 20])


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"calls": 5}, r"'calls'.*something else than buffers by name.*got int"),
        ({1: np.zeros(1)}, "something else than buffers by name.*got int"),
        ([np.zeros(1)], "something else than buffers by name.*got list"),
    ],
)
def test_what_get_state_must_not_give_is_named(given: object, text: str) -> None:
    class Wrong(Stateful):
        def get_state(self) -> Any:
            return given

    method = _program(Wrong).load_method()
    with pytest.raises(pteron.DelegateError, match=text):
        method.get_state()


def test_a_delegate_that_refuses_leaves_the_buffers_of_the_method_alone() -> None:
    delegate = Stateful()
    delegate.refuses = True
    method = _program(lambda: delegate, own_state=True).load_method()
    with pytest.raises(pteron.DelegateError, match="not now") as caught:
        method.set_state({"total": np.zeros(2, np.float32), "calls": np.ones(1, np.int64)})
    assert caught.value.backend == "Owner"
    assert isinstance(caught.value.__cause__, ValueError)
    np.testing.assert_array_equal(method.get_state()["total"], [10, 20])


def test_a_backend_that_owns_buffers_and_does_not_give_them_is_named() -> None:
    method = _program(Counting, owned=["cache", "position"], own_state=True).load_method()
    uses = [
        method.get_state,
        method.reset_state,
        lambda: method.set_state({"cache": ONE}),
        lambda: method.save_state("never.ptd"),
    ]
    for use in uses:
        with pytest.raises(pteron.DelegateError, match=r"Owner.*get_state.*cache, position") as caught:
            use()
        assert caught.value.backend == "Owner"
    method.set_state({"total": np.zeros(2, np.float32)})
    np.testing.assert_array_equal(method(X, X), X + 1)


def test_one_that_owns_nothing_as_far_as_anybody_knows_is_no_error() -> None:
    method = _program(Counting).load_method()
    assert method.get_state() == {}
    method.reset_state()


@pytest.mark.parametrize(("make", "owned"), [(Stateful, None), (Counting, ["calls"])])
def test_methods_with_stateful_delegates_are_refused_by_run(make: Any, owned: list[str] | None) -> None:
    with pytest.raises(pteron.InputError, match=r"keeps state between calls.*load_method"):
        _program(make, owned=owned).run("forward", X, X)


def test_state_methods_without_buffers_are_no_state() -> None:
    class Empty(Stateful):
        def get_state(self) -> dict[str, np.ndarray]:
            return {}

    np.testing.assert_array_equal(_program(Empty).run("forward", X, X), X + 1)


def test_names_that_clash_and_values_that_are_none() -> None:
    class Clash(Stateful):
        def get_state(self) -> dict[str, np.ndarray]:
            return {"total": self.calls}

    class List(Stateful):
        def get_state(self) -> Any:
            return [self.calls]

    class Half(Counting):
        def get_state(self) -> dict[str, np.ndarray]:
            return {}

    with pytest.raises(pteron.DelegateError, match=r"there is already.*'total'|'total'.*there is already"):
        _program(Clash, own_state=True).load_method().get_state()
    with pytest.raises(pteron.DelegateError, match=r"dict from str to arrays.*got list"):
        _program(List).load_method().get_state()
    with pytest.raises(pteron.DelegateError, match="get_state without set_state and reset_state"):
        _program(Half).load_method()


@pytest.mark.parametrize("stored", [[], {"1": ["a"]}, {"0": "a"}, {"0": [1]}, {"x": ["a"]}])
def test_damaged_lists_of_buffers_are_refused_at_load(stored: Any) -> None:
    m = delegate_method("Owner")
    interface = {**m.interface(), "delegate_buffers": stored}
    m.interface = lambda: interface  # type: ignore[method-assign]
    with pytest.raises(pteron.ProgramError, match="names buffers of delegates"):
        pteron.load(build(m))
