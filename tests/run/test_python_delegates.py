"""Backends written in Python: what they get, what they may do, what happens when they fail."""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import sys
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import pteron
from tests.support.programs import MethodBuilder, build, call_tree, delegate_method, leaf

X = np.arange(6, dtype=np.float32).reshape(2, 3)
Y = np.full((2, 3), 10, dtype=np.float32)


class Sum:
    """A delegate that adds its inputs."""

    num_outputs = 1

    def __init__(self, log: list[str] | None = None) -> None:
        self.log = log if log is not None else []

    def execute(self, ctx: Any, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> None:
        self.log.append("execute")
        out = outputs[0].numpy()
        out[...] = 0
        for x in inputs:
            out += x.numpy()

    def destroy(self) -> None:
        self.log.append("destroy")


class SumBackend:
    """Makes `Sum`, and remembers what it was told."""

    def __init__(self, make: Any = Sum) -> None:
        self.make = make
        self.log: list[str] = []
        self.told: list[Any] = []

    def init(self, ctx: Any, processed: memoryview, compile_specs: dict[str, bytes]) -> Any:
        self.told.append((ctx, processed, compile_specs))
        self.log.append("init")
        return self.make(self.log)


def _runtime(**backends: Any) -> pteron.Runtime:
    runtime = pteron.Runtime()
    for name, backend in backends.items():
        pteron.register_backend(name, backend, runtime=runtime)
    return runtime


def _method(execute: Any, **options: Any) -> pteron.Method:
    """A method with one delegate whose execute is the given function."""
    cls = type("Custom", (Sum,), {"execute": execute, **options})
    runtime = _runtime(Sum=SumBackend(cls))
    return pteron.load(build(delegate_method("Sum")), runtime=runtime).load_method()


def test_a_delegate_computes() -> None:
    backend = SumBackend()
    method = pteron.load(build(delegate_method("Sum")), runtime=_runtime(Sum=backend)).load_method()
    for i in range(3):
        np.testing.assert_array_equal(method(X + i, Y), X + i + Y)
    assert backend.log == ["init", "execute", "execute", "execute"]
    del method
    gc.collect()
    assert backend.log[-1] == "destroy"


def test_init_is_told_everything() -> None:
    backend = SumBackend()
    specs = [("max_value", b"\x04"), ("mode", b"fast"), ("mode", b"slow")]
    data = build(
        delegate_method("Sum", blob=b"payload", specs=specs), named_data={"weights": b"\x01\x02\x03\x04"}
    )
    program = pteron.load(data, runtime=_runtime(Sum=backend))
    program.load_method(backend_options={"Sum": {"b": True, "i": 3, "s": "x"}}, num_threads=1)
    ctx, processed, compile_specs = backend.told[0]
    assert ctx.num_threads == 1
    assert isinstance(processed, memoryview)
    assert processed.readonly
    assert bytes(processed) == b"payload"
    assert compile_specs == {"max_value": b"\x04", "mode": b"slow"}
    assert ctx.compile_specs == tuple(specs)
    assert ctx.method == "forward"
    assert ctx.options == {"b": True, "i": 3, "s": "x"}
    weights = ctx.named_data("weights")
    assert weights.readonly
    del program
    gc.collect()
    assert bytes(weights) == b"\x01\x02\x03\x04"
    with pytest.raises(KeyError, match="no named data 'nothing'"):
        ctx.named_data("nothing")


def test_arguments_are_read_only_inputs_and_writable_outputs() -> None:
    seen: dict[str, Any] = {}

    def execute(self: Any, ctx: Any, inputs: Any, outputs: Any) -> None:
        seen["ctx"] = (ctx.method, ctx.instruction, ctx.is_cancelled())
        seen["kinds"] = (type(inputs), type(outputs), len(inputs), len(outputs))
        x, out = inputs[0], outputs[0]
        seen["meta"] = (x.shape, x.dtype, x.writable, out.writable, x.valid)
        with pytest.raises(ValueError, match="read-only"):
            x.numpy()[...] = 0
        with pytest.raises(BufferError, match="read-only"):
            x.__dlpack__()
        assert not np.from_dlpack(x).flags.writeable
        assert memoryview(x).readonly
        np.from_dlpack(out)[...] = np.asarray(x) + np.asarray(inputs[1])

    method = _method(execute)
    np.testing.assert_array_equal(method(X, Y), X + Y)
    assert seen["ctx"] == ("forward", 2, False)
    assert seen["kinds"] == (tuple, tuple, 2, 1)
    assert seen["meta"] == ((2, 3), "float32", False, True, True)


def test_scalars_and_none_reach_delegates_as_python_values() -> None:
    seen: list[Any] = []

    def execute(self: Any, ctx: Any, inputs: Any, outputs: Any) -> None:
        seen.extend(inputs)
        outputs[0].numpy()[...] = 1

    m = MethodBuilder()
    args = [m.int(3), m.double(0.5), m.bool(True), m.string("text"), m.none()]
    out = m.output(m.tensor([2]))
    m.delegate("Sum", [*args, out])
    cls = type("Custom", (Sum,), {"execute": execute})
    method = pteron.load(build(m), runtime=_runtime(Sum=SumBackend(cls))).load_method()
    np.testing.assert_array_equal(method.execute([])[0], [1, 1])
    assert seen == [3, 0.5, True, "text", None]


def test_dynamic_outputs_are_given_their_shape() -> None:
    def execute(self: Any, ctx: Any, inputs: Any, outputs: Any) -> None:
        (out,) = outputs
        rows = inputs[0].shape[0]
        with pytest.raises(pteron.KernelError, match="at most"):
            out.resize([rows + 100, 3])
        view = memoryview(out)
        with pytest.raises(BufferError, match="exports of its memory are alive"):
            out.resize([rows, 3])
        view.release()
        out.resize([rows, 3])
        assert out.shape == (rows, 3)
        out.numpy()[...] = 2 * inputs[0].numpy()

    m = MethodBuilder()
    dims = [{"symbol": "s0", "min": 1, "max": 8}, 3]
    x = m.input(m.tensor([8, 3], dynamic=True), "x", dims)
    made = m.output(m.tensor([8, 3], dynamic=True))
    m.ranges[made] = dims
    m.delegate("Sum", [x, made])
    m.input_tree = call_tree([leaf()])
    cls = type("Custom", (Sum,), {"execute": execute})
    method = pteron.load(build(m), runtime=_runtime(Sum=SumBackend(cls))).load_method()
    for rows in (2, 8, 1):
        x = np.random.default_rng(rows).random((rows, 3), dtype=np.float32)
        np.testing.assert_array_equal(method(x), 2 * x)


class Failure(Exception):
    """Raised by the delegates of these tests."""

    def __init__(self, text: str, debug_handle: int | None = None) -> None:
        super().__init__(text)
        self.debug_handle = debug_handle


def test_failing_execute_is_the_cause_and_the_method_lives_on() -> None:
    fail = [True]

    def execute(self: Any, ctx: Any, inputs: Any, outputs: Any) -> None:
        view = inputs[0].numpy()  # a local variable that the traceback holds
        if fail[0]:
            raise Failure("instruction demo::tan_default<debug_handle>1\nis not supported", 1)
        outputs[0].numpy()[...] = view

    method = _method(execute)
    for _ in range(3):
        with pytest.raises(pteron.DelegateError) as caught:
            method(X, Y)
        error = caught.value
        assert isinstance(error.__cause__, Failure)
        assert (error.backend, error.method, error.instruction, error.debug_handle) == (
            "Sum",
            "forward",
            2,
            1,
        )
        text = str(error)
        for part in ("backend Sum", "instruction 2", "Failure", "is not supported", "debug handle is: 1"):
            assert part in text, text
        assert "\n" not in text
        assert error.__cause__.__traceback__ is not None
    fail[0] = False
    np.testing.assert_array_equal(method(X, Y), X)


def test_what_a_stopped_delegate_raises_is_the_cause() -> None:
    def execute(self: Any, ctx: Any, inputs: Any, outputs: Any) -> None:
        method.cancel()
        assert ctx.is_cancelled()
        raise Failure("told to stop")

    method = _method(execute)
    with pytest.raises(pteron.Cancelled) as caught:
        method(X, Y)
    assert isinstance(caught.value.__cause__, Failure)


def test_source_line_comes_from_the_debug_table_of_the_delegate() -> None:
    def execute(self: Any, ctx: Any, inputs: Any, outputs: Any) -> None:
        raise Failure("no tan", 1)

    def table(line: int, module: str) -> dict[str, Any]:
        entry = {"operator": "aten.tan.default", "module": module, "file": 0, "line": line}
        return {"1": entry, "7": {**entry, "line": 999}}

    debug = {
        "version": 1,
        "files": ["models/net.py"],
        "methods": {
            "forward": {
                "instructions": [[], [], [7], []],
                "handles": table(111, "caller"),
                "delegates": {"0": {"backend": "Sum", "handles": table(12, "net.tan"), "map": {}}},
            }
        },
    }
    cls = type("Custom", (Sum,), {"execute": execute})
    runtime = _runtime(Sum=SumBackend(cls))
    method = pteron.load(build(delegate_method("Sum"), debug=debug), runtime=runtime).load_method()
    with pytest.raises(pteron.DelegateError) as caught:
        method(X, Y)
    assert caught.value.source_line is not None
    assert "models/net.py:12" in caught.value.source_line
    assert "net.tan" in caught.value.source_line
    assert "models/net.py:12" in str(caught.value)
    assert "111" not in str(caught.value)
    assert json.dumps(debug)


@pytest.mark.parametrize("phase", ["init", "is_available", "num_outputs", "delegate"])
def test_failures_at_load(phase: str) -> None:
    class Backend(SumBackend):
        def init(self, ctx: Any, processed: memoryview, compile_specs: dict[str, bytes]) -> Any:
            if phase == "init":
                raise Failure("cannot read the blob", 5)
            if phase == "delegate":
                return object()
            return Broken()

    class Broken(Sum):
        @property
        def num_outputs(self) -> int:  # type: ignore[override]
            raise Failure("nobody counted")

    if phase == "is_available":
        Backend.is_available = lambda self: 1 / 0  # type: ignore[attr-defined]
    program = pteron.load(build(delegate_method("Sum")), runtime=_runtime(Sum=Backend()))
    expected = pteron.MissingBackendError if phase == "is_available" else pteron.DelegateError
    with pytest.raises(expected) as caught:
        program.load_method()
    text = str(caught.value)
    wanted = {
        "init": "init raised",
        "is_available": "is_available raised",
        "num_outputs": "nobody counted",
        "delegate": "num_outputs",
    }[phase]
    assert wanted in text
    assert "Sum" in text
    if phase in ("init", "num_outputs"):
        assert isinstance(caught.value.__cause__, Failure)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [("no such chip", "no such chip"), (False, "gave False"), (7, "gave int instead of True")],
)
def test_unavailable_backends_say_why(answer: Any, reason: str) -> None:
    backend = SumBackend()
    backend.is_available = lambda: answer  # type: ignore[attr-defined]
    runtime = _runtime(Sum=backend)
    assert not runtime.is_available("Sum")
    assert reason in (runtime.unavailable_reason("Sum") or "")
    with pytest.raises(pteron.MissingBackendError, match=reason):
        pteron.load(build(delegate_method("Sum")), runtime=runtime).load_method()


def test_earlier_delegates_are_destroyed_when_a_later_one_fails() -> None:
    good = SumBackend()

    class Bad:
        def init(self, *_: Any) -> Any:
            raise Failure("no")

    m = delegate_method("Good")
    m.delegate("Bad", [m.inputs[0], m.outputs[0]])
    program = pteron.load(build(m), runtime=_runtime(Good=good, Bad=Bad()))
    for _ in range(3):
        with pytest.raises(pteron.DelegateError):
            program.load_method()
    gc.collect()
    assert good.log.count("init") == good.log.count("destroy") == 3


@pytest.mark.parametrize("count", [-1, 1.5, "1", True, None])
def test_bad_num_outputs(count: Any) -> None:
    with pytest.raises(pteron.DelegateError, match="num_outputs of a delegate is not a number"):
        _method(Sum.execute, num_outputs=count)


def test_more_outputs_than_arguments() -> None:
    with pytest.raises(pteron.ProgramError, match="more outputs than its call has arguments"):
        _method(Sum.execute, num_outputs=4)


def test_a_value_given_back_is_an_error() -> None:
    method = _method(lambda self, ctx, inputs, outputs: 1.0)
    with pytest.raises(pteron.DelegateError, match=r"gave a value back.*got float.*in place"):
        method(X, Y)


KEEPERS = {
    "array": lambda t: t.numpy(),
    "asarray": np.asarray,
    "buffer": lambda t: np.ndarray(t.shape, np.float32, t),
    "memoryview": memoryview,
    "dlpack": np.from_dlpack,
    "capsule": lambda t: t.__dlpack__(max_version=(1, 0)),
    "tensor": lambda t: t,
}


@pytest.mark.parametrize("keeper", KEEPERS)
@pytest.mark.parametrize("which", ["input", "output"])
@pytest.mark.parametrize("way", ["method", "run"])
def test_arguments_cannot_be_kept(keeper: str, which: str, way: str) -> None:
    kept: list[Any] = []

    def execute(self: Any, ctx: Any, inputs: Any, outputs: Any) -> None:
        outputs[0].numpy()[...] = inputs[0].numpy()
        if not kept:
            kept.append(KEEPERS[keeper](inputs[1] if which == "input" else outputs[0]))

    cls = type("Custom", (Sum,), {"execute": execute})
    program = pteron.load(build(delegate_method("Sum")), runtime=_runtime(Sum=SumBackend(cls)))
    method = program.load_method()
    call: Any = method if way == "method" else functools.partial(program.run, "forward")
    with pytest.raises(pteron.DelegateError) as caught:
        call(X, Y)
    expected = "input 1" if which == "input" else "output 0"
    assert f"argument '{expected}'" in str(caught.value)
    assert "copy what is needed" in str(caught.value)
    if way == "method":
        with pytest.raises(pteron.DelegateError, match="load the method again"):
            method(X, Y)
    else:
        np.testing.assert_array_equal(call(X, Y), X)
    if keeper == "tensor":
        assert not kept[0].valid
        assert "expired" in repr(kept[0])
        with pytest.raises(BufferError, match="delegate call that has ended"):
            kept[0].numpy()
    del method, call, program
    gc.collect()
    noise = [np.random.default_rng(i).random((2, 3)) for i in range(50)]
    if keeper in ("array", "asarray", "buffer", "memoryview", "dlpack"):
        np.testing.assert_array_equal(np.asarray(kept[0]), Y if which == "input" else X)
    assert noise


def test_context_ends_with_the_call() -> None:
    kept: list[Any] = []

    def execute(self: Any, ctx: Any, inputs: Any, outputs: Any) -> None:
        kept.append(ctx)

    method = _method(execute)
    method(X, Y)
    assert kept[0].method == "forward"
    with pytest.raises(RuntimeError, match="has ended"):
        kept[0].is_cancelled()
    with pytest.raises(RuntimeError, match="has ended"):
        kept[0].event("late", 1, 2)
    assert not kept[0].is_traced


@pytest.mark.parametrize("is_promoted", [False, True])
def test_arguments_in_circles_of_references_are_not_kept(is_promoted: bool) -> None:
    def execute(self: Any, ctx: Any, inputs: Any, outputs: Any) -> None:
        def value(n: Any) -> Any:
            # Refers to itself, so to its closure, so to `inputs`.
            return inputs[n].numpy() if isinstance(n, int) else sum(value(k) for k in n)

        try:
            raise KeyError("caught")
        except KeyError as e:
            error = e  # noqa: F841  The traceback refers to this frame.
        outputs[0].numpy()[...] = value((0, (1, 0)))
        if is_promoted:
            gc.collect(0)
            gc.collect(1)

    method = _method(execute)
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for _ in range(3):
            np.testing.assert_array_equal(method(X, Y), 2 * X + Y)
    finally:
        if was_enabled:
            gc.enable()


def test_pooled_sessions_follow_a_backend_that_is_replaced() -> None:
    runtime = _runtime(Sum=SumBackend())
    program = pteron.load(build(delegate_method("Sum")), runtime=runtime)
    loaded = program.load_method()
    np.testing.assert_array_equal(program.run("forward", X, Y), X + Y)

    class Negated(Sum):
        def execute(self, ctx: Any, inputs: Any, outputs: Any) -> None:
            super().execute(ctx, inputs, outputs)
            outputs[0].numpy()[...] *= -1

    pteron.register_backend("Sum", SumBackend(Negated), runtime=runtime, replace=True)
    np.testing.assert_array_equal(program.run("forward", X, Y), -(X + Y))
    np.testing.assert_array_equal(program.load_method()(X, Y), -(X + Y))
    # A method keeps the backend that it was loaded with.
    np.testing.assert_array_equal(loaded(X, Y), X + Y)


def test_reentry_is_busy_and_other_sessions_work() -> None:
    inner: dict[str, Any] = {}

    def execute(self: Any, ctx: Any, inputs: Any, outputs: Any) -> None:
        if "method" in inner:
            method = inner.pop("method")
            with pytest.raises(pteron.MethodBusy, match="running already"):
                method(X, Y)
            other = inner["program"].load_method()
            np.testing.assert_array_equal(other(X, Y), X + Y)
        Sum.execute(self, ctx, inputs, outputs)

    cls = type("Custom", (Sum,), {"execute": execute})
    program = pteron.load(build(delegate_method("Sum")), runtime=_runtime(Sum=SumBackend(cls)))
    method = program.load_method()
    inner.update(method=method, program=program)
    np.testing.assert_array_equal(method(X, Y), X + Y)
    np.testing.assert_array_equal(method(X, Y), X + Y)


def test_a_delegate_may_drop_the_program_that_calls_it() -> None:
    holder: dict[str, Any] = {}

    def execute(self: Any, ctx: Any, inputs: Any, outputs: Any) -> None:
        holder.clear()
        gc.collect()
        Sum.execute(self, ctx, inputs, outputs)

    method = _method(execute)
    holder["method"] = method
    del method
    np.testing.assert_array_equal(holder["method"](X, Y), X + Y)


def test_destroy_that_raises_goes_to_the_unraisable_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    caught: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda info: caught.append(info.exc_value))

    def destroy(self: Any) -> None:
        raise Failure("cannot let go")

    method = _method(Sum.execute, destroy=destroy)
    del method
    gc.collect()
    assert [str(e) for e in caught] == ["cannot let go"]


@pytest.mark.parametrize("has_destroy", [True, False])
@pytest.mark.parametrize("way", ["method", "run", "count", "execute"])
def test_errors_outlive_the_session_that_they_unwind(has_destroy: bool, way: str) -> None:
    class Fails:
        num_outputs = 1

        def execute(self, ctx: Any, inputs: Any, outputs: Any) -> None:
            raise Failure("no luck")

    log: list[str] = []

    class Destroyed(Fails):
        def destroy(self) -> None:
            with contextlib.suppress(KeyError):
                {}["raised and caught while the outer exception is on its way"]
            log.append("destroy")

    runtime = _runtime(Sum=SumBackend(lambda _: Destroyed() if has_destroy else Fails()))
    data = build(delegate_method("Sum"))
    # Nothing but the frame that the exception leaves holds the session.
    calls = {
        "method": lambda: pteron.load(data, runtime=runtime).load_method("forward")(X, Y),
        "run": lambda: pteron.load(data, runtime=runtime).run("forward", X, Y),
        "count": lambda: pteron.load(data, runtime=runtime).load_method("forward")(X),
        "execute": lambda: pteron.load(data, runtime=runtime).load_method("forward").execute([X, Y]),
    }
    with pytest.raises(pteron.InputError if way == "count" else pteron.DelegateError) as caught:
        calls[way]()
    if way != "count":
        assert isinstance(caught.value.__cause__, Failure)
    gc.collect()
    assert log == ["destroy"] * has_destroy


def test_destroy_that_raises_does_not_replace_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda info: seen.append(str(info.exc_value)))

    def execute(self: Any, ctx: Any, inputs: Any, outputs: Any) -> None:
        raise Failure("first")

    def destroy(self: Any) -> None:
        raise Failure("second")

    cls = type("Custom", (Sum,), {"execute": execute, "destroy": destroy})
    data = build(delegate_method("Sum"))
    with pytest.raises(pteron.DelegateError, match="first"):
        pteron.load(data, runtime=_runtime(Sum=SumBackend(cls))).load_method()(X, Y)
    assert seen == ["second"]


def test_sessions_can_be_referred_to_weakly() -> None:
    backend = SumBackend()
    program = pteron.load(build(delegate_method("Sum")), runtime=_runtime(Sum=backend))
    method = program.load_method()
    references = [weakref.ref(method), weakref.ref(program)]
    assert [r() for r in references] == [method, program]
    del method, program
    gc.collect()
    assert [r() for r in references] == [None, None]
    assert backend.log[-1] == "destroy"


def test_system_exit_and_keyboard_interrupt_are_not_wrapped() -> None:
    for kind in (KeyboardInterrupt, SystemExit):

        def execute(self: Any, ctx: Any, inputs: Any, outputs: Any, kind: Any = kind) -> None:
            raise kind

        method = _method(execute)
        with pytest.raises(kind):
            method(X, Y)


def test_calls_stay_on_the_calling_thread() -> None:
    threads: list[int] = []

    def execute(self: Any, ctx: Any, inputs: Any, outputs: Any) -> None:
        threads.append(threading.get_ident())
        Sum.execute(self, ctx, inputs, outputs)

    method = _method(execute)
    method(X, Y)
    worker = threading.Thread(target=method, args=(X, Y))
    worker.start()
    worker.join()
    assert threads[0] == threading.get_ident()
    assert threads[1] != threading.get_ident()


def test_registration() -> None:
    runtime = pteron.Runtime()
    assert runtime.backends == ("XnnpackBackend",)
    pteron.register_backend("Sum", SumBackend(), runtime=runtime)
    with pytest.raises(pteron.DelegateError, match=r"registered already.*replace=True"):
        pteron.register_backend("Sum", SumBackend(), runtime=runtime)
    pteron.register_backend("Sum", SumBackend(), runtime=runtime, replace=True)
    assert runtime.backends == ("Sum", "XnnpackBackend")
    with pytest.raises(TypeError, match="not its class"):
        pteron.register_backend("Class", SumBackend, runtime=runtime)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="needs a method init"):
        pteron.register_backend("Object", object(), runtime=runtime)  # type: ignore[arg-type]
    assert runtime.unavailable_reason("Nothing") == "no backend of this name is registered"
