"""Every kind of error says what to do; misuse of our own parameters names the parameter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pteron
from tests.support.programs import (
    MethodBuilder,
    add_method,
    build,
    call_tree,
    counter_method,
    delegate_method,
    dynamic_add_method,
    leaf,
)

X = np.zeros((2, 3), np.float32)


class Failing:
    """A backend and delegate in one; both halves can fail."""

    num_outputs = 1

    def __init__(self, phase: str) -> None:
        self.phase = phase

    def init(self, *_: Any) -> Any:
        if self.phase == "init":
            raise ValueError("cannot read the blob")
        return self

    def execute(self, *_: Any) -> None:
        raise ValueError("cannot compute")


class NoExport:
    """Promises DLPack and breaks the promise."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("not today")


def _add(**options: Any) -> pteron.Method:
    return pteron.load(build(add_method())).load_method(**options)


def _released() -> memoryview:
    view = memoryview(X)
    view.release()
    return view


def _two_outputs() -> pteron.Method:
    m = MethodBuilder()
    x = m.input(m.tensor([3]), "x")
    for alpha in (1, 2):
        out = m.output(m.tensor([3]))
        m.add(x, x, out, alpha)
    m.input_tree = call_tree([leaf()])
    return pteron.load(build(m)).load_method()


def _delegate(phase: str, runs: bool = True) -> Any:
    runtime = pteron.Runtime()
    pteron.register_backend("Failing", Failing(phase), runtime=runtime)
    method = pteron.load(build(delegate_method("Failing")), runtime=runtime).load_method()
    return method(X, X) if runs else method


def _kernel_error() -> Any:
    m = MethodBuilder()
    x = m.input(m.tensor([2, 2]), "x")
    index = m.input(m.tensor([1], "int64"), "index")
    out = m.output(m.tensor([1, 2]))
    m.call("aten::index_select.out", [x, m.int(0), index, out, out])
    m.input_tree = call_tree([leaf()] * 2)
    return pteron.load(build(m)).load_method()(np.zeros((2, 2), np.float32), np.array([7]))


def _missing_operator(name: str = "aten::transmogrify.default") -> Any:
    m = add_method()
    m.call(name, [m.inputs[0], m.outputs[0]])
    return pteron.load(build(m)).load_method()


def _dynamic() -> pteron.Method:
    return pteron.load(build(dynamic_add_method())).load_method()


def _f32(*shape: int) -> np.ndarray[Any, Any]:
    return np.zeros(shape, np.float32)


Case = tuple[type[pteron.PteronError], Callable[[], Any]]
CASES: dict[str, Case] = {
    "count": (pteron.InputError, lambda: _add().execute([X])),
    "call count": (pteron.InputError, lambda: _add()(X)),
    "shape": (pteron.InputError, lambda: _add()(X, _f32(2, 4))),
    "rank": (pteron.InputError, lambda: _add()(X, _f32(2))),
    "range": (pteron.InputError, lambda: _dynamic()(_f32(9, 3), _f32(9, 3))),
    "symbol": (pteron.InputError, lambda: _dynamic()(_f32(2, 3), _f32(4, 3))),
    "dtype": (pteron.InputTypeError, lambda: _add()(X, X.astype(np.float64))),
    "python type": (pteron.InputTypeError, lambda: _add()(X, "x")),
    "number": (pteron.InputTypeError, lambda: _add()(X, 1.0)),
    "released": (pteron.InputTypeError, lambda: _add()(X, _released())),
    "dlpack": (pteron.InputTypeError, lambda: _add()(X, NoExport())),
    "datetime": (pteron.InputTypeError, lambda: _add()(X, np.zeros((2, 3), "datetime64[s]"))),
    "record": (pteron.InputTypeError, lambda: _add()(X, np.zeros((2, 3), "f4,f4"))),
    "unknown method": (pteron.MethodNotFoundError, lambda: pteron.load(build(add_method())).run("f")),
    "missing operator": (pteron.MissingOperatorError, _missing_operator),
    "missing backend": (
        pteron.MissingBackendError,
        lambda: pteron.load(build(delegate_method("Nowhere"))).load_method(),
    ),
    "output count": (pteron.InputError, lambda: _add().execute([X, X], outputs=[None, None])),
    "no outputs": (pteron.InputError, lambda: _add().execute([X, X], outputs=[])),
    "output shape": (pteron.InputError, lambda: _add().execute([X, X], outputs=[_f32(3, 2)])),
    "output dtype": (pteron.InputTypeError, lambda: _add().execute([X, X], outputs=[X.astype("i4")])),
    "output strides": (pteron.InputError, lambda: _add().execute([X, X], outputs=[_f32(3, 2).T])),
    "output type": (pteron.InputTypeError, lambda: _add().execute([X, X], outputs=[3])),
    "output read-only": (pteron.InputTypeError, lambda: _add().execute([X, X], outputs=[bytes(24)])),
    "state name": (
        pteron.InputError,
        lambda: pteron.load(build(counter_method())).load_method().set_state({"t": X}),
    ),
    "state shape": (
        pteron.InputError,
        lambda: pteron.load(build(counter_method())).load_method().set_state({"total": X}),
    ),
    "no state": (pteron.InputError, lambda: _add().set_state({"t": X})),
}
FAILURES: dict[str, Case] = {
    "delegate init": (pteron.DelegateError, lambda: _delegate("init")),
    "delegate execute": (pteron.DelegateError, lambda: _delegate("execute")),
    "kernel": (pteron.KernelError, _kernel_error),
    "empty file": (pteron.ProgramError, lambda: pteron.load(b"")),
    "short file": (pteron.ProgramError, lambda: pteron.load(build(add_method())[:100])),
    "text file": (pteron.ProgramError, lambda: pteron.load(b"not a program" * 50)),
    "directory": (pteron.ProgramError, lambda: pteron.load(Path(__file__).parent)),
    "budget": (pteron.LimitExceeded, lambda: _add().execute([X, X], budget=0)),
}


@pytest.mark.parametrize("name", [*CASES, *FAILURES])
def test_every_kind_has_a_hint(name: str) -> None:
    kind, call = CASES.get(name) or FAILURES[name]
    with pytest.raises(kind) as caught:
        call()
    error = caught.value
    assert type(error) is kind
    assert error.hint
    assert f"(hint: {error.hint})" in str(error)
    assert str(error).count("hint:") == 1
    if name in CASES:
        assert error.expected
        assert error.got
        assert f"expected {error.expected}; got {error.got}" in str(error)


def test_unknown_methods_and_directories_are_named() -> None:
    with pytest.raises(pteron.MethodNotFoundError) as unknown:
        pteron.load(build(add_method())).load_method("f")
    assert unknown.value.expected == "one of forward"
    with pytest.raises(pteron.ProgramError, match=r"got the directory .*path of the \.pte file"):
        pteron.load(Path(__file__).parent)


def test_missing_operators_say_what_python_users_can_do() -> None:
    with pytest.raises(pteron.MissingOperatorError) as caught:
        _missing_operator()
    for part in (
        "delegate",
        "decompose",
        "pteron.Runtime().operators",
        "ExecutorchBackendConfig(kernels='pteron')",
    ):
        assert part in (caught.value.hint or "")
    assert "_native" not in str(caught.value)
    with pytest.raises(pteron.MissingOperatorError) as caught:
        _missing_operator("mine::transmogrify.default")
    for part in (
        "pteron.register_kernel('mine::transmogrify.default', function)",
        "Runtime::register_function",
    ):
        assert part in (caught.value.hint or "")


def test_delegates_that_cannot_be_made_are_counted() -> None:
    with pytest.raises(
        pteron.DelegateError, match=r"delegate 0 of the method could not be made: init raised"
    ) as e:
        _delegate("init")
    assert e.value.argument is None


def test_output_buffers_that_share_memory_are_refused() -> None:
    method = _two_outputs()
    x = np.arange(3, dtype=np.float32)
    z, big = np.full(3, 7, np.float32), np.full(6, 7, np.float32)
    for buffers in ([z, z], [big[:3], big[2:5]], [big[2:5], big[:3]], [big[1:4], memoryview(big)[2:5]]):
        with pytest.raises(pteron.InputError, match="share memory") as caught:
            method.execute([x], outputs=buffers)
        for name in ("output 0 ('output0')", "output 1 ('output1')"):
            assert name in str(caught.value)
    assert (z == 7).all()
    assert (big == 7).all()
    method.execute([x], outputs=[big[:3], big[3:]])
    np.testing.assert_array_equal(big, [0, 2, 4, 0, 3, 6])
    method.execute([x], outputs=[x, None])  # an output may lie where an input was
    np.testing.assert_array_equal(x, [0, 2, 4])


BAD_PARAMETERS: dict[str, tuple[type[Exception], str, Callable[[], Any]]] = {
    "source": (TypeError, "source", lambda: pteron.load(3)),  # type: ignore[arg-type]
    "limits": (TypeError, "limits", lambda: pteron.load(build(add_method()), limits=3)),  # type: ignore[arg-type]
    "runtime": (TypeError, "runtime", lambda: pteron.load(build(add_method()), runtime=3)),  # type: ignore[arg-type]
    "mmap": (TypeError, "mmap", lambda: pteron.load(build(add_method()), mmap="no")),  # type: ignore[arg-type]
    "run": (TypeError, "method", lambda: pteron.load(build(add_method())).run(3, X)),  # type: ignore[arg-type]
    "method": (TypeError, "method", lambda: pteron.load(build(add_method())).load_method(3)),  # type: ignore[arg-type]
    "inputs of": (TypeError, "method", lambda: pteron.load(build(add_method())).inputs(3)),  # type: ignore[arg-type]
    "no threads": (ValueError, "num_threads", lambda: _add(num_threads=0)),
    "negative threads": (ValueError, "num_threads", lambda: _add(num_threads=-1)),
    "threads": (TypeError, "num_threads", lambda: _add(num_threads="2")),
    "method limits": (TypeError, "limits", lambda: _add(limits=3)),
    "options": (TypeError, "backend_options", lambda: _add(backend_options=3)),
    "options of": (TypeError, "backend_options['B']", lambda: _add(backend_options={"B": 3})),
    "option": (TypeError, "backend_options['B']['k']", lambda: _add(backend_options={"B": {"k": 1.5}})),
    "inputs": (TypeError, "inputs", lambda: _add().execute(X)),  # type: ignore[arg-type]
    "outputs": (TypeError, "outputs", lambda: _add().execute([X, X], outputs=X)),  # type: ignore[arg-type]
    "budget": (ValueError, "budget", lambda: _add().execute([X, X], budget=-1)),
    "budget type": (TypeError, "budget", lambda: _add().execute([X, X], budget=1.5)),  # type: ignore[arg-type]
    "deadline": (ValueError, "deadline", lambda: _add().execute([X, X], deadline=float("nan"))),
    "deadline type": (TypeError, "deadline", lambda: _add().execute([X, X], deadline="1")),  # type: ignore[arg-type]
    "state": (TypeError, "state", lambda: _add().set_state(3)),  # type: ignore[arg-type]
    "state key": (TypeError, "state", lambda: _add().set_state({3: X})),  # type: ignore[dict-item]
    "isa": (ValueError, "isa", lambda: pteron.Runtime(isa="mmx")),
    "isa type": (TypeError, "isa", lambda: pteron.Runtime(isa=3)),  # type: ignore[arg-type]
    "pool": (ValueError, "num_threads", lambda: pteron.Runtime(num_threads=0)),
    "rules": (TypeError, "disabled_rules", lambda: pteron.Runtime(disabled_rules="all")),
    "unknown rule": (ValueError, "disabled_rules", lambda: pteron.Runtime(disabled_rules=["nope"])),
    "arena": (ValueError, "arena_bytes", lambda: pteron.Limits(arena_bytes=-1)),
    "arena type": (TypeError, "arena_bytes", lambda: pteron.Limits(arena_bytes=1e9)),  # type: ignore[arg-type]
    "instructions": (ValueError, "instructions", lambda: pteron.Limits(instructions=2**64)),
    "backend name": (ValueError, "name", lambda: pteron.register_backend("", Failing(""))),
    "backend name type": (TypeError, "name", lambda: pteron.register_backend(3, Failing(""))),  # type: ignore[arg-type]
    "replace": (TypeError, "replace", lambda: pteron.register_backend("B", Failing(""), replace="x")),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", BAD_PARAMETERS)
def test_bad_parameters_are_named(name: str) -> None:
    builtin, parameter, call = BAD_PARAMETERS[name]
    with pytest.raises(builtin) as caught:
        call()
    error = caught.value
    assert isinstance(error, pteron.InputError)
    assert isinstance(error, pteron.InputTypeError) == (builtin is TypeError)
    assert error.argument == parameter
    assert error.expected
    assert error.got
    assert error.hint
    assert f"argument '{parameter}'" in str(error)


def test_options_for_backends_that_the_method_does_not_use() -> None:
    with pytest.raises(
        pteron.InputError, match=r"expected none: the method uses no backends; got options for Other"
    ):
        _add(backend_options={"Other": {}})
    runtime = pteron.Runtime()
    pteron.register_backend("Failing", Failing("execute"), runtime=runtime)
    program = pteron.load(build(delegate_method("Failing")), runtime=runtime)
    with pytest.raises(pteron.InputError, match=r"expected options for Failing; got options for Faling"):
        program.load_method(backend_options={"Faling": {"x": 1}, "Failing": {}})
    program.load_method(backend_options={"Failing": {"x": 1}})


def test_known_rules_can_be_switched_off() -> None:
    with pytest.raises(pteron.InputError) as caught:
        pteron.Runtime(disabled_rules=["nope"])
    names = (caught.value.expected or "").removeprefix("names out of: ").split(", ")
    assert len(names) > 1
    pteron.Runtime(disabled_rules=names)
    pteron.Runtime(disabled_rules=["all"])
