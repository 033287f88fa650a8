"""Programs that cannot travel to another process, predictors that no program fits, and calls of theirs."""

from __future__ import annotations

import os
import pickle
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import pteron
from pteron import program_cache
from pteron._native import restored_value_spec
from pteron.batching import Batch, Joined
from pteron.pooled_call import Call
from tests.support.programs import (
    MethodBuilder,
    add_method,
    build,
    counter_method,
    dynamic_add_method,
    schema,
)

X = np.zeros((3, 3), np.float32)


def _dynamic(**settings: Any) -> pteron.Predictor:
    return pteron.Predictor(build(dynamic_add_method()), **settings)


def _loaded(**settings: Any) -> Callable[[], object]:
    return lambda: _dynamic(**settings).load()


def _called(inputs: Any, **settings: Any) -> Callable[[], object]:
    return lambda: _dynamic(**settings)(inputs)


def _derived_method() -> MethodBuilder:
    """Columns of x, t of them, and an output that is said to have 2*t."""
    m = MethodBuilder()
    columns = {"symbol": "t", "min": 1, "max": 4}
    x = m.input(m.tensor([2, 4], dynamic=True), "x", [2, columns])
    out = m.output(m.tensor([2, 8], dynamic=True))
    m.ranges[out] = [2, {"expr": "2*t", "min": 2, "max": 8}]
    m.call("aten::cat.out", [m.value(schema.TensorList([x, x])), m.int(1), out, out])
    return m


def _rows_of_a_fixed_output() -> None:
    m = MethodBuilder()
    x = m.input(m.tensor([4, 3], dynamic=True), "x", [{"symbol": "b", "min": 1, "max": 4}, 3])
    total = m.output(m.tensor([3]))
    m.call("aten::sum.IntList_out", [x, m.int_list([0]), m.bool(False), m.none(), total, total])
    pteron.Predictor(build(m), batched=["x"]).load()


def _own_runtime() -> None:
    pickle.dumps(pteron.load(build(add_method()), runtime=pteron.Runtime(num_threads=1)))


def _method() -> None:
    pickle.dumps(pteron.load(build(add_method())).load_method())


def _changed(change: Callable[[Path], object], *, before_pickling: bool = False) -> Callable[[], object]:
    """The file of a pickled program is another one where the pickle arrives, or before it is made."""

    def call() -> None:
        program_cache.forget()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model.pte")
            path.write_bytes(build(add_method()))
            program = pteron.load(path)
            if before_pickling:
                change(path)
            data = pickle.dumps(program)
            change(path)
            pickle.loads(data)

    return call


def _longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def _other(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(bytes([*content[:-1], content[-1] ^ 1]))


def _other_data_file() -> None:
    from tests.run.test_pickling import data_file, with_external_weight

    program_cache.forget()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "weights.ptd")
        path.write_bytes(data_file(2))
        data = pickle.dumps(pteron.load(with_external_weight(), data=path))
        path.write_bytes(data_file(3))
        pickle.loads(data)


def _environment() -> None:
    before = os.environ.get("PTERON_NUM_THREADS")
    os.environ["PTERON_NUM_THREADS"] = "many"
    try:
        _dynamic().load()
    finally:
        del os.environ["PTERON_NUM_THREADS"]
        if before is not None:
            os.environ["PTERON_NUM_THREADS"] = before


def _busy() -> None:
    predictor = _dynamic(max_calls=1).load()
    loaded = predictor._loaded
    assert loaded is not None
    assert loaded._gate.acquire(timeout=60)
    predictor({"x": X, "y": X}, deadline=0.0)


def _cancelled_early() -> None:
    program = pteron.load(build(add_method()))
    go_on = threading.Event()
    executor_is_full = [_blocked(go_on) for _ in range(64)]
    call = Call(program, "forward", (X[:2], X[:2]), {})
    call._token.cancel()
    go_on.set()
    assert executor_is_full
    call.result(60)


def _blocked(go_on: threading.Event) -> object:
    from pteron.pooled_call import _PROCESS

    return _PROCESS.executor().submit(go_on.wait, 60)


CALLS: dict[str, Callable[[], object]] = {
    "a pickle of a program on a runtime of its own": _own_runtime,
    "a pickle of a method": _method,
    "a pickled file of another size": _changed(_longer),
    "a pickled file of other content": _changed(_other),
    "a pickle of a file that changed": _changed(_longer, before_pickling=True),
    "a pickled data file of other content": _other_data_file,
    "PTERON_NUM_THREADS is no number": _environment,
    "a predictor of a number": lambda: pteron.Predictor(5),  # type: ignore[arg-type]
    "a predictor of a method with state": lambda: pteron.Predictor(build(counter_method())).load(),
    "a predictor with no calls at once": _loaded(max_calls=0),
    "a predictor with a name for a list": _loaded(batched="x"),
    "a predictor with an unknown output": _loaded(outputs=["nothing"]),
    "a predictor with an unknown batched input": _loaded(batched=["nothing"]),
    "a predictor with inputs of other batches": lambda: pteron.Predictor(
        build(_two_batches()), batched=["x", "y"]
    ).load(),
    "a predictor with an output without rows": _rows_of_a_fixed_output,
    "a predictor with buckets and no batch": _loaded(batched=(), buckets=(1,)),
    "a predictor with a bucket of an unknown dimension": _loaded(buckets={"t": (1,)}),
    "a predictor without a value to fill up with": lambda: pteron.Predictor(
        build(_derived_method()), buckets={"t": (1,)}
    ).load(),
    "a predictor with a bucket beyond the range": lambda: pteron.Predictor(
        build(_derived_method()), buckets={"t": (9,)}, pad_values={"x": 0}
    ).load(),
    "a predictor with a bucket of a computed extent": lambda: pteron.Predictor(
        build(_derived_method()), buckets={"t": (4,)}, pad_values={"x": 0}
    ).load(),
    "a predictor with a batch size beyond the range": _loaded(batch_size=9),
    "batches whose outputs have other extents": lambda: _joined(np.zeros((2, 3)), np.zeros((2, 4))),
    "batches of an element type that NumPy lacks": lambda: _joined(memoryview(b"1234")),
    "a call without rows and with a computed extent": lambda: pteron.Predictor(build(_derived_method()))(
        {"x": np.zeros((0, 4), np.float32)}
    ),
    "a call of a predictor with a list": _called([X, X]),
    "a call of a predictor with an unknown input": _called({"x": X, "y": X, "z": X}),
    "a call of a predictor without an input": _called({"x": X}),
    "a call of a predictor with a ragged list": _called({"x": X, "y": [[1.0], [1.0, 2.0]]}),
    "a call of a predictor with a number for rows": _called({"x": X, "y": 1.0}),
    "a call of a predictor with other rows": _called({"x": X, "y": X[:2]}),
    "rows of a predictor without a batch": lambda: pteron.Predictor(build(add_method()), batched=()).run_rows(
        [{"x": X, "y": X}]
    ),
    "rows of a predictor without an input": lambda: pteron.Predictor(build(add_method())).run_rows(
        [{"x": X}]
    ),
    "a call of a busy predictor beyond its deadline": _busy,
    "a damaged pickle of a spec": lambda: restored_value_spec("x", False, (99, [], [], [], True)),
    "a call that is cancelled before it runs": _cancelled_early,
}


def _joined(*results: Any) -> None:
    joined = Joined("y", 2 * len(results) + 1)
    for index, result in enumerate(results):
        joined.add(result, Batch(2 * index, 2 * index + 2, 2))


def _two_batches() -> MethodBuilder:
    """Two inputs whose rows vary each for itself."""
    m = MethodBuilder()
    for name, symbol in (("x", "a"), ("y", "b")):
        dims = [{"symbol": symbol, "min": 1, "max": 4}, 3]
        x = m.input(m.tensor([4, 3], dynamic=True), name, dims)
        out = m.output(m.tensor([4, 3], dynamic=True))
        m.ranges[out] = dims
        m.add(x, x, out)
    return m
