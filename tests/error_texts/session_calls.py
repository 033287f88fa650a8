"""Sessions that are asked for what they cannot give: inputs, outputs, state, limits, delegates."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import pteron
from pteron import _native
from tests.support.failing_calls import EXAMPLES
from tests.support.programs import (
    ITEM_SIZES,
    MethodBuilder,
    add_method,
    assemble,
    build,
    call_tree,
    counter_method,
    delegate_method,
    dynamic_add_method,
    endless_method,
    leaf,
    node,
    on_device,
    schema,
)

X = np.zeros((2, 3), np.float32)
OUT = np.zeros((2, 3), np.float32)


def add() -> pteron.Method:
    """`x + y`."""
    return pteron.load(build(add_method())).load_method()


def dynamic() -> pteron.Method:
    """`x + y` over 1 to 8 rows."""
    return pteron.load(build(dynamic_add_method())).load_method()


def counter() -> pteron.Method:
    """A method with a buffer."""
    return pteron.load(build(counter_method())).load_method()


def _scalars() -> pteron.Method:
    m = MethodBuilder()
    m.input(m.int(3), "n")
    m.ranges[m.inputs[0]] = [0, 9]
    x = m.input(m.tensor([2]), "x")
    m.output(x)
    return pteron.load(build(m)).load_method()


def _fixed() -> pteron.Method:
    m = MethodBuilder()
    n = m.input(m.int(3), "n")
    x = m.input(m.tensor([2]), "x")
    m.outputs += [x, n]
    return pteron.load(build(m)).load_method()


def _two_outputs() -> pteron.Method:
    m = add_method()
    m.add(0, 1, m.output(m.tensor([2, 3])))
    return pteron.load(build(m)).load_method()


def external(data: Any = None) -> pteron.Program:
    """A program with one tensor, `w` of float32[2], in a data file."""
    m = MethodBuilder()
    x = m.input(m.tensor([2]), "x")
    w = m.tensor([2], planned=False)
    m.values[w].extra_tensor_info = schema.ExtraTensorInfo(0, "w", schema.EXTERNAL)
    m.add(x, w, m.output(m.tensor([2])))
    return pteron.load(build(m), data=data)


def data_file(key: str, sizes: list[int], *, dtype: int = 6, fill: bytes = b"\0") -> bytes:
    """A data file with one tensor of one value."""
    layout = schema.TensorLayout(dtype, sizes, list(range(len(sizes))))
    contents = fill * (int(np.prod(sizes)) * ITEM_SIZES[dtype])
    head, pieces, length = _native.layout_data_file([schema.DataFileEntry(key, contents, 16, layout)])
    data = bytearray(length)
    data[: len(head)] = head
    for offset, piece in pieces:
        data[offset : offset + len(piece)] = piece
    return bytes(data)


def _nested() -> pteron.Method:
    m = add_method()
    pair = node("builtins.dict", [leaf(), leaf()], ["a", "b"])
    m.input_tree = call_tree([pair])
    return pteron.load(build(m)).load_method()


def _tuple() -> pteron.Method:
    m = add_method()
    m.input_tree = call_tree([node("builtins.tuple", [leaf(), leaf()])])
    return pteron.load(build(m)).load_method()


def _keyword() -> pteron.Method:
    m = add_method()
    m.input_tree = call_tree([leaf()], {"y": leaf()})
    return pteron.load(build(m)).load_method()


def endless(limits: pteron.Limits) -> pteron.Method:
    """A method that jumps back for ever."""
    return pteron.load(build(endless_method())).load_method(limits=limits)


def _limit(**limits: Any) -> Callable[[], object]:
    return lambda: pteron.load(build(add_method()), limits=pteron.Limits(**limits)).load_method()


class _Backend:
    """A backend for one call: keyword arguments replace its methods."""

    num_outputs = 1

    def __init__(self, **methods: Any) -> None:
        for name, value in methods.items():
            setattr(self, name, value)

    def init(self, *_: object) -> Any:
        return self

    def execute(self, *_: object) -> Any:
        return None


def delegated(backend: Any, name: str = "Mine") -> Callable[[], object]:
    """A call of a method with one delegate of this backend."""

    def call() -> None:
        runtime = pteron.Runtime()
        pteron.register_backend(name, backend, runtime=runtime)
        pteron.load(build(delegate_method(name)), runtime=runtime).load_method()(X, X)

    return call


def _raises(error: BaseException) -> Callable[..., Any]:
    def method(*_: object) -> Any:
        raise error

    return method


def _keeping() -> None:
    kept: list[Any] = []
    runtime = pteron.Runtime()
    backend = _Backend(execute=lambda _, inputs, outputs: kept.append(np.asarray(inputs[0])))
    pteron.register_backend("Mine", backend, runtime=runtime)
    pteron.load(build(delegate_method("Mine")), runtime=runtime).load_method()(X, X)


def _demo(method: MethodBuilder, **options: Any) -> Callable[[], object]:
    def call() -> None:
        runtime = pteron.Runtime()
        _native.register_demo_backends(runtime)
        pteron.load(build(method, **options), runtime=runtime).load_method()(X, X)

    return call


def nested(most: int | None = None, arena_bytes: int | None = None) -> None:
    """A program in a program, where `most` may lie inside each other, and together have so many bytes."""
    runtime = pteron.Runtime()
    _native.register_demo_backends(runtime)
    data = build(delegate_method("ExecutorBackend", blob=build(add_method())))
    limits = pteron.Limits(nesting=most, arena_bytes=arena_bytes)
    pteron.load(data, runtime=runtime, limits=limits).load_method()(X, X)


def _twice() -> None:
    runtime = pteron.Runtime()
    for _ in range(2):
        pteron.register_backend("Mine", _Backend(), runtime=runtime)


def _state(change: Callable[[pteron.Method, Path], object]) -> Callable[[], object]:
    def call() -> None:
        with tempfile.TemporaryDirectory() as folder:
            change(counter(), Path(folder) / "state.ptd")

    return call


def _foreign_state(method: pteron.Method, path: Path) -> None:
    add().save_state(path)
    method.load_state(path)


CALLS: dict[str, Callable[[], object]] = {
    **{f"example: {cls.__name__}": call for cls, call in EXAMPLES.items()},
    # Inputs.
    "too few inputs": lambda: add().execute([X]),
    "a call with too few arguments": lambda: add()(X),
    "an unknown keyword": lambda: add()(X, X, z=X),
    "a missing keyword": lambda: _keyword()(X),
    "inputs by names of others": lambda: add().execute({"x": X, "z": X}),
    "an input of another shape": lambda: add()(X, np.zeros((2, 4), np.float32)),
    "an input of another rank": lambda: add()(X, np.zeros(6, np.float32)),
    "an input of 17 dimensions": lambda: add()(X, np.zeros((1,) * 17, np.float32)),
    "an input of another dtype": lambda: add()(X, X.astype(np.int64)),
    "a dtype that no tensor has": lambda: add()(X, X.astype("U3")),
    "another byte order": lambda: add()(X, X.astype(">f4")),
    "an input that is a text": lambda: add()(X, "text"),
    "nothing": lambda: add()(X, None),
    "inputs that are no list": lambda: add().execute(X),
    "too many rows": lambda: dynamic()(np.zeros((9, 3), np.float32), np.zeros((9, 3), np.float32)),
    "rows that disagree": lambda: dynamic()(np.zeros((2, 3), np.float32), np.zeros((4, 3), np.float32)),
    "a number outside its range": lambda: _scalars().execute([10, np.zeros(2, np.float32)]),
    "a number beyond 64 bits": lambda: _scalars().execute([1 << 80, np.zeros(2, np.float32)]),
    "a number of another type": lambda: _scalars().execute([1.5, np.zeros(2, np.float32)]),
    "a number that is fixed": lambda: _fixed().execute([4, np.zeros(2, np.float32)]),
    "memory for a number": lambda: _fixed().execute([3, np.zeros(2, np.float32)], outputs=[None, X]),
    "one memory for two outputs": lambda: _two_outputs().execute([X, X], outputs=[OUT, OUT]),
    "other keys": lambda: _nested()({"a": X, "c": X}),
    "no mapping": lambda: _nested()([X, X]),
    "other elements": lambda: _tuple()((X,)),
    "no tuple": lambda: _tuple()(X),
    # Outputs.
    "too many outputs": lambda: add().execute([X, X], outputs=[OUT, OUT]),
    "outputs that are no list": lambda: add().execute([X, X], outputs=OUT),
    "an output of another shape": lambda: add().execute([X, X], outputs=[np.zeros((3, 2), np.float32)]),
    "an output of another dtype": lambda: add().execute([X, X], outputs=[np.zeros((2, 3), np.int32)]),
    "a read-only output": lambda: add().execute([X, X], outputs=[b"1" * 24]),
    "a scattered output": lambda: add().execute([X, X], outputs=[np.zeros((3, 2), np.float32).T]),
    "an output of objects": lambda: add().execute([X, X], outputs=[np.zeros((2, 3), object)]),
    # Parameters.
    "a negative budget": lambda: add().execute([X, X], budget=-1),
    "a budget that is a text": lambda: add().execute([X, X], budget="1"),
    "a negative deadline": lambda: add().execute([X, X], deadline=-1.0),
    "no threads": lambda: add().execute([X, X], num_threads=0),
    "a runtime of no threads": lambda: pteron.Runtime(num_threads=0),
    "an unknown instruction set": lambda: pteron.Runtime(isa="mmx"),
    "an unknown rule": lambda: pteron.Runtime(disabled_rules=["none"]),
    "a method's name that is a number": lambda: pteron.load(build(add_method())).load_method(1),
    "a method to run that is not there": lambda: pteron.load(build(add_method())).run("backward", X, X),
    "limits that are none": lambda: pteron.load(build(add_method()), limits=3),
    "a negative limit": lambda: pteron.Limits(rank=-1),
    "options for nobody": lambda: pteron.load(build(add_method())).load_method(
        backend_options={"B": {"k": 1}}
    ),
    "a source that is a number": lambda: pteron.load(3),
    # Limits; the other side of each is in tests/run/test_error_snapshots.py.
    "limits.arena_bytes": _limit(arena_bytes=127),
    "limits.values": _limit(values=3),
    "limits.rank": _limit(rank=1),
    "limits.instructions": lambda: endless(pteron.Limits(instructions=9))(X, X),
    "limits.nesting": lambda: nested(1),
    "limits.arena_bytes with a program inside": lambda: nested(arena_bytes=400),
    "a budget": lambda: add().execute([X, X], budget=0),
    # State.
    "state of no buffer": lambda: counter().set_state({"none": X}),
    "state of another shape": lambda: counter().set_state({"total": X}),
    "state that is no tensor": lambda: counter().set_state({"total": "text"}),
    "state of a pool": lambda: pteron.load(build(counter_method())).run("forward", np.zeros(2, np.float32)),
    "a state file without the buffer": _state(_foreign_state),
    "a state file that is none": _state(lambda m, path: (path.write_bytes(b"1234"), m.load_state(path))),
    "sessions that share nothing": lambda: pteron.load(
        build(add_method(), add_method(name="b"))
    ).load_methods(["forward", "b"]),
    "a method named twice": lambda: pteron.load(build(counter_method())).load_methods(["forward", "forward"]),
    # Data files.
    "a data file beside a program that is none": lambda: pteron.load(build(add_method()), data=b"\0" * 64),
    "a program without its data file": lambda: external().load_method(),
    "a data file of another tensor": lambda: external(data_file("w", [3])).load_method(),
    "a data file without the tensor": lambda: external(data_file("v", [2])).load_method(),
    "a data file with another dtype": lambda: external(data_file("w", [2], dtype=4)).load_method(),
    "two data files that disagree": lambda: external([data_file("w", [2]), data_file("w", [2], fill=b"1")]),
    # Delegates.
    "a backend of an empty name": lambda: pteron.register_backend("", _Backend(), runtime=pteron.Runtime()),
    "a backend of a name in use": _twice,
    "a backend that is not available": delegated(_Backend(is_available=lambda: "no such device")),
    "memory of a device that no backend serves": lambda: pteron.load(
        _native.serialize_program(on_device(assemble(delegate_method("Mine"))))
    ).load_method(),
    "init that raises": delegated(_Backend(init=_raises(OSError("no firmware")))),
    "init that gives a number": delegated(_Backend(init=lambda *_: 3)),
    "num_outputs that is none": delegated(_Backend(num_outputs="many")),
    "num_outputs beyond the arguments": delegated(_Backend(num_outputs=9)),
    "execute that raises": delegated(_Backend(execute=_raises(ValueError("no such table")))),
    "execute that gives a value": delegated(_Backend(execute=lambda *_: 3)),
    "execute that keeps an argument": _keeping,
    "a delegate with half a state": delegated(_Backend(get_state=dict)),
    "a list of steps without a count": _demo(delegate_method("BackendWithDelegateMappingDemo", blob=b"a,1,")),
    "a demo blob that is none": _demo(delegate_method("BackendWithCompilerDemo", blob=b"none")),
    "a nested program that is none": _demo(delegate_method("ExecutorBackend", blob=b"none")),
    "a nested program without the method": _demo(
        delegate_method("ExecutorBackend", blob=build(add_method(name="b")))
    ),
    "a structure of nothing": lambda: pteron.load(build(_untold())).load_method()(X, X, z=X),
}


def _untold() -> MethodBuilder:
    m = add_method()
    m.input_tree = m.output_tree = ""
    return m
