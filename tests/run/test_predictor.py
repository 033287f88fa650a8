"""`pteron.Predictor`: rows in batches that the method takes, in any process."""

from __future__ import annotations

import logging
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pteron
from pteron import program_cache
from pteron.thread_cap import threads_of_environment
from tests.support.programs import (
    MethodBuilder,
    add_method,
    build,
    counter_method,
    delegate_method,
    dynamic_add_method,
    endless_method,
)


@pytest.fixture(autouse=True)
def _forget() -> None:
    program_cache.forget()


def rows(count: int, columns: int = 3) -> np.ndarray[Any, Any]:
    return np.arange(count * columns, dtype=np.float32).reshape(count, columns)


def sequence_method() -> MethodBuilder:
    """`x + y` over rows (1 to 4) and positions (2 to 8)."""
    m = MethodBuilder()
    dims = [{"symbol": "b", "min": 1, "max": 4}, {"symbol": "t", "min": 2, "max": 8}]
    x = m.input(m.tensor([4, 8], dynamic=True), "x", dims)
    y = m.input(m.tensor([4, 8], dynamic=True), "y", dims)
    out = m.output(m.tensor([4, 8], dynamic=True))
    m.ranges[out] = dims
    m.add(x, y, out)
    return m


def with_weight_method() -> MethodBuilder:
    """`x + w`: rows of x (1 to 4), and one `w` of fixed shape that is added to all of them."""
    m = MethodBuilder()
    dims = [{"symbol": "b", "min": 1, "max": 4}, 3]
    x = m.input(m.tensor([4, 3], dynamic=True), "x", dims)
    w = m.input(m.tensor([1, 3]), "w")
    out = m.output(m.tensor([4, 3], dynamic=True))
    m.ranges[out] = dims
    m.add(x, w, out)
    return m


class Shapes:
    """Notes the numbers of rows that a program runs."""

    def __init__(self, predictor: pteron.Predictor, monkeypatch: pytest.MonkeyPatch) -> None:
        loaded = predictor.load()._loaded
        assert loaded is not None
        execute = loaded._execute
        self.rows: list[int] = []

        def noted(given: dict[str, Any], ends: float | None) -> list[Any]:
            self.rows.append(len(given["x"]))
            return execute(given, ends)

        monkeypatch.setattr(loaded, "_execute", noted)


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 16, 21])
def test_any_number_of_rows_over_a_dimension_that_varies(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    predictor = pteron.Predictor(build(dynamic_add_method((2, 8))))
    shapes = Shapes(predictor, monkeypatch)
    x = rows(count)
    result = predictor({"x": x, "y": x + 1})
    assert list(result) == ["output0"]
    np.testing.assert_array_equal(result["output0"], 2 * x + 1)
    full, rest = divmod(count, 8)
    assert shapes.rows == [8] * full + ([max(rest, 2)] if rest else [])


@pytest.mark.parametrize("count", [1, 3, 4, 5, 8, 11])
def test_any_number_of_rows_over_a_fixed_batch(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    predictor = pteron.Predictor(build(add_method((4, 3))))
    shapes = Shapes(predictor, monkeypatch)
    x = rows(count)
    result = predictor({"x": x, "y": x})["output0"]
    np.testing.assert_array_equal(result, x + x)
    assert set(shapes.rows) == {4}
    counters = predictor.counters()
    assert (counters.calls, counters.rows, counters.batches) == (1, count, -(-count // 4))
    assert counters.padded_rows == 4 * counters.batches - count


def test_results_own_their_memory_and_are_the_callers() -> None:
    predictor = pteron.Predictor(build(dynamic_add_method((1, 8))))
    x = rows(8)
    first = predictor({"x": x, "y": x})["output0"]
    first[:] = -1
    second = predictor({"x": x, "y": x})["output0"]
    np.testing.assert_array_equal(second, x + x)
    assert (first == -1).all()


def test_padding_repeats_a_row_so_that_no_made_up_number_is_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    predictor = pteron.Predictor(build(add_method((4, 3))))
    loaded = predictor.load()._loaded
    assert loaded is not None
    seen: list[np.ndarray[Any, Any]] = []
    execute = loaded._execute
    monkeypatch.setattr(
        loaded, "_execute", lambda given, ends: seen.append(given["x"]) or execute(given, ends)
    )
    x = rows(2) + 5
    predictor({"x": x, "y": x})
    np.testing.assert_array_equal(seen[0], x[[0, 1, 1, 1]])


def test_buckets_are_the_only_numbers_of_rows_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    predictor = pteron.Predictor(build(dynamic_add_method((1, 64))), buckets=(16, 1, 4))
    shapes = Shapes(predictor, monkeypatch)
    for count in (1, 2, 4, 5, 16, 17, 35):
        x = rows(count)
        np.testing.assert_array_equal(predictor({"x": x, "y": x})["output0"], x + x)
    assert shapes.rows == [1, 4, 4, 16, 16, *(16, 1), *(16, 16, 4)]


def test_a_batch_size_bounds_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    predictor = pteron.Predictor(build(dynamic_add_method((1, 64))), batch_size=10)
    shapes = Shapes(predictor, monkeypatch)
    predictor({"x": rows(25), "y": rows(25)})
    assert shapes.rows == [10, 10, 5]


def test_no_rows_give_no_rows() -> None:
    for method in (dynamic_add_method(), add_method((4, 3))):
        result = pteron.Predictor(build(method))({"x": rows(0), "y": rows(0)})["output0"]
        assert result.shape == (0, 3)
        assert result.dtype == np.float32
    result = pteron.Predictor(build(sequence_method()))({"x": rows(0, 5), "y": rows(0, 5)})["output0"]
    assert result.shape == (0, 5)


def test_sequences_are_filled_up_to_buckets_and_cut_back() -> None:
    predictor = pteron.Predictor(
        build(sequence_method()),
        buckets={"b": (1, 4), "t": (4, 6)},
        pad_values={"x": 0, "y": 7},
        warm_up=True,
    )
    for count, length in ((1, 2), (3, 4), (9, 5), (2, 8)):
        x = rows(count, length)
        np.testing.assert_array_equal(predictor({"x": x, "y": x})["output0"], x + x)
    assert predictor.counters().calls == 4, "the warm-up is not counted"


def test_rows_that_come_one_by_one_run_together(monkeypatch: pytest.MonkeyPatch) -> None:
    predictor = pteron.Predictor(
        build(sequence_method()), buckets={"b": (1, 4), "t": (4, 6)}, pad_values={"x": 0, "y": 7}
    )
    shapes = Shapes(predictor, monkeypatch)
    given = [rows(1, length)[0] + length for length in (2, 5, 3, 8, 6, 4, 4, 2, 7)]
    found = predictor.run_rows([{"x": row, "y": row} for row in given])
    for row, result in zip(given, found, strict=True):
        np.testing.assert_array_equal(result["output0"], row + row)
        assert result["output0"].base is None, "no row keeps its batch alive"
    assert shapes.rows == [4, 1, 4, 1, 1], (
        "of 4 tokens in two batches, of 6, of 8 and of 7, each to its bucket"
    )
    assert predictor.run_rows([]) == []


def test_rows_share_what_has_no_rows() -> None:
    predictor = pteron.Predictor(build(with_weight_method()))
    w = np.full((1, 3), 10, np.float32)
    found = predictor.run_rows([{"x": row} for row in rows(9)], shared={"w": w})
    np.testing.assert_array_equal([result["output0"] for result in found], rows(9) + 10)
    with pytest.raises(pteron.InputError, match="shared="):
        predictor.run_rows([{"x": rows(1)[0], "w": w}])
    with pytest.raises(pteron.InputError, match="'w' is missing"):
        predictor.run_rows([{"x": rows(1)[0]}])
    with pytest.raises(pteron.InputError, match="'x'"):
        predictor.run_rows([{"x": rows(1, 4)[0]}], shared={"w": w})
    with pytest.raises(pteron.DeadlineExceeded):
        predictor.run_rows([{"x": rows(1)[0]}], shared={"w": w}, deadline=0.0)
    with pytest.raises(pteron.InputError, match="no batch dimension"):
        pteron.Predictor(build(add_method()), batched=()).run_rows([{"x": X3, "y": X3}])


def test_inputs_without_the_dimension_are_given_to_every_batch() -> None:
    predictor = pteron.Predictor(build(with_weight_method()))
    w = np.full((1, 3), 10, np.float32)
    np.testing.assert_array_equal(predictor({"x": rows(9), "w": w})["output0"], rows(9) + 10)
    assert predictor.batching is not None
    assert predictor.batching.inputs == ("x",)


def test_a_single_dimension_is_no_batch_unless_it_is_named() -> None:
    m = MethodBuilder()
    dims = [{"symbol": "n", "min": 1, "max": 4}]
    x = m.input(m.tensor([4], dynamic=True), "x", dims)
    out = m.output(m.tensor([4], dynamic=True))
    m.ranges[out] = dims
    m.add(x, x, out)
    data = build(m)
    signal = np.arange(6, dtype=np.float32)
    whole = pteron.Predictor(data)
    assert whole.batching is None
    with pytest.raises(pteron.InputError, match="'x'"):
        whole({"x": signal})
    np.testing.assert_array_equal(whole({"x": signal[:3]})["output0"], 2 * signal[:3])
    named = pteron.Predictor(data, batched=["x"])
    np.testing.assert_array_equal(named({"x": signal})["output0"], 2 * signal)


def test_without_batches_each_call_is_one_run() -> None:
    predictor = pteron.Predictor(build(dynamic_add_method((2, 8))), batched=())
    np.testing.assert_array_equal(predictor({"x": rows(5), "y": rows(5)})["output0"], 2 * rows(5))
    for count in (1, 9):
        with pytest.raises(pteron.InputError, match="'x'"):
            predictor({"x": rows(count), "y": rows(count)})
    assert predictor.counters().refused == 2


X3 = rows(3)


@pytest.mark.parametrize(
    ("inputs", "names"),
    [
        ({"x": X3}, "'y'"),
        ({"x": X3, "y": X3, "z": X3}, "'z'"),
        ({"x": X3, "y": X3[:2]}, "'y'.*3 rows, as x has"),
        ({"x": X3, "y": np.float32(1)}, "'y'.*no rows"),
        ({"x": X3, "y": X3.astype(np.float64)}, "'y'.*float32"),
        ({"x": X3, "y": rows(3, 4)}, "'y'"),
        ({"x": X3, "y": [[1.0], [1.0, 2.0]]}, "'y'.*NumPy array"),
    ],
)
def test_inputs_that_do_not_fit_are_named(inputs: dict[str, Any], names: str) -> None:
    predictor = pteron.Predictor(build(dynamic_add_method()))
    with pytest.raises(pteron.InputError, match=names):
        predictor(inputs)
    assert predictor.counters().refused == 1
    np.testing.assert_array_equal(predictor({"x": X3, "y": X3})["output0"], X3 + X3)


def test_a_list_of_inputs_is_refused() -> None:
    with pytest.raises(pteron.InputTypeError, match="a dict with x, y"):
        pteron.Predictor(build(add_method()))([X3, X3])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"batched": ["z"]}, "'z'"),
        ({"batched": "x"}, "batched"),
        ({"outputs": ["nothing"]}, "'nothing'.*output0"),
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 9}, "batch_size.*from 1 to 8.*9"),
        ({"buckets": (4, 16)}, "buckets.*from 1 to 8.*16"),
        ({"buckets": {"t": (4,)}}, "buckets.*t"),
        ({"max_calls": 0}, "max_calls"),
        ({"num_threads": 0}, "num_threads"),
    ],
)
def test_settings_that_do_not_fit_are_named(settings: dict[str, Any], names: str) -> None:
    with pytest.raises(pteron.InputError, match=names):
        pteron.Predictor(build(dynamic_add_method()), **settings).load()


def test_buckets_without_a_batch_or_a_value_are_refused() -> None:
    data = build(sequence_method())
    with pytest.raises(pteron.InputError, match="no batch dimension"):
        pteron.Predictor(data, batched=(), buckets=(1, 2)).load()
    with pytest.raises(pteron.InputError, match="fill the input 'y' up"):
        pteron.Predictor(data, buckets={"t": (4,)}, pad_values={"x": 0}).load()
    with pytest.raises(pteron.InputError, match=r"buckets.*t from 2 to 8.*9"):
        pteron.Predictor(data, buckets={"t": (9,)}, pad_values={"x": 0, "y": 0}).load()


def total_method() -> MethodBuilder:
    """Rows of `x + x`, and their sum over the batch, which has no rows."""
    m = MethodBuilder()
    dims = [{"symbol": "b", "min": 1, "max": 4}, 3]
    x = m.input(m.tensor([4, 3], dynamic=True), "x", dims)
    out = m.output(m.tensor([4, 3], dynamic=True))
    m.ranges[out] = dims
    m.add(x, x, out)
    total = m.output(m.tensor([3]))
    m.call("aten::sum.IntList_out", [x, m.int_list([0]), m.bool(False), m.none(), total, total])
    return m


def test_an_output_without_rows_cannot_be_joined_and_can_be_left_out() -> None:
    data = build(total_method())
    with pytest.raises(pteron.InputError, match="'output1' has no row for each row"):
        pteron.Predictor(data, batched=["x"]).load()
    assert pteron.Predictor(data).batching is None
    np.testing.assert_array_equal(pteron.Predictor(data)({"x": rows(3)})["output1"], rows(3).sum(0))
    chosen = pteron.Predictor(data, outputs=["output0"])
    assert list(chosen({"x": rows(9)})) == ["output0"]
    assert [spec.name for spec in chosen.outputs] == ["output0"]


def test_state_is_refused_with_the_buffer() -> None:
    with pytest.raises(pteron.InputError, match=r"keeps state between calls.*total"):
        pteron.Predictor(build(counter_method())).load()


def test_state_of_delegates_is_refused_at_the_call() -> None:
    class Keeping:
        num_outputs = 1

        def init(self, *_: Any) -> Any:
            return self

        def execute(self, ctx: Any, inputs: Any, outputs: Any) -> None:
            raise AssertionError("it must not run")

        def get_state(self) -> dict[str, Any]:
            return {"seen": np.zeros(1)}

        def set_state(self, state: Any) -> None: ...

        def reset_state(self) -> None: ...

    runtime = pteron.Runtime()
    pteron.register_backend("Keeping", Keeping(), runtime=runtime)
    predictor = pteron.Predictor(pteron.load(build(delegate_method("Keeping")), runtime=runtime))
    with pytest.raises(pteron.InputError, match="keeps state"):
        predictor({"x0": rows(2), "x1": rows(2)})


def test_a_file_that_is_not_there_is_noticed_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        pteron.Predictor(tmp_path / "nothing.pte")


def test_it_travels_without_the_program(tmp_path: Path) -> None:
    path = tmp_path / "add.pte"
    path.write_bytes(build(dynamic_add_method()))
    predictor = pteron.Predictor(path, buckets=(1, 8), limits=pteron.Limits(rank=4))
    predictor({"x": X3, "y": X3})
    data = pickle.dumps(predictor)
    assert len(data) < 2000
    arrived = pickle.loads(data)
    assert arrived.counters() == pteron.metrics.Counters()
    np.testing.assert_array_equal(arrived({"x": X3, "y": X3})["output0"], X3 + X3)
    assert arrived._loaded.program is predictor._loaded.program, "one program in a process"  # type: ignore[union-attr]
    path.write_bytes(build(dynamic_add_method(columns=4)))
    late = pickle.loads(data)
    with pytest.raises(pteron.ProgramError, match="than when the program was loaded"):
        late.load()


def test_it_takes_a_program_and_sends_what_that_was_loaded_from() -> None:
    program = pteron.load(build(dynamic_add_method()))
    predictor = pteron.Predictor(program)
    assert predictor.load()._loaded.program is program  # type: ignore[union-attr]
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(predictor))({"x": X3, "y": X3})["output0"], X3 + X3
    )


def test_a_deadline_stops_it_and_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    predictor = pteron.Predictor(build(endless_method()), batched=())
    with (
        caplog.at_level(logging.DEBUG, logger="pteron"),
        pytest.raises(pteron.DeadlineExceeded),
    ):
        predictor({"x": rows(2), "y": rows(2)}, deadline=0.05)
    assert predictor.counters().stopped == 1
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    assert "program, forward: stopped: " in caplog.text


def test_calls_beyond_the_bound_wait_and_their_deadline_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    predictor = pteron.Predictor(build(dynamic_add_method()), max_calls=2)
    loaded = predictor.load()._loaded
    assert loaded is not None
    execute = loaded._execute
    lock, inside, most = threading.Lock(), 0, 0
    both, go_on = threading.Barrier(3), threading.Event()

    def waiting(given: dict[str, Any], ends: float | None) -> list[Any]:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        if not go_on.is_set():
            both.wait(60)
            assert go_on.wait(60)
        results = execute(given, ends)
        with lock:
            inside -= 1
        return results

    monkeypatch.setattr(loaded, "_execute", waiting)
    with ThreadPoolExecutor(6) as callers:
        first = [callers.submit(predictor, {"x": X3, "y": X3}) for _ in range(2)]
        both.wait(60)
        with pytest.raises(pteron.DeadlineExceeded, match="other calls of the predictor"):
            predictor({"x": X3, "y": X3}, deadline=0.01)
        more = [callers.submit(predictor, {"x": X3, "y": X3}) for _ in range(4)]
        go_on.set()
        for future in first + more:
            np.testing.assert_array_equal(future.result(60)["output0"], X3 + X3)
    assert most == 2


@pytest.mark.parametrize(
    ("ours", "openmp", "cap"),
    [
        (None, None, None),
        ("3", "1", 3),
        (None, "2", 2),
        (None, "4,2", 4),
        (None, "dynamic", None),
        ("", "2", 2),
        (None, "0", None),
    ],
)
def test_the_environment_caps_threads(
    ours: str | None, openmp: str | None, cap: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("PTERON_NUM_THREADS", ours), ("OMP_NUM_THREADS", openmp)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert threads_of_environment() == cap
    assert pteron.Predictor(build(add_method())).num_threads == cap
    assert pteron.Predictor(build(add_method()), num_threads=5).num_threads == 5


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5"])
def test_a_cap_that_is_no_number_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTERON_NUM_THREADS", value)
    with pytest.raises(pteron.InputError, match="PTERON_NUM_THREADS"):
        pteron.Predictor(build(add_method())).load()


def test_unload_lets_the_program_go() -> None:
    import weakref

    predictor = pteron.Predictor(build(dynamic_add_method())).load()
    program = weakref.ref(predictor._loaded.program)  # type: ignore[union-attr]
    predictor.unload()
    assert program() is None
    np.testing.assert_array_equal(predictor({"x": X3, "y": X3})["output0"], X3 + X3)


def test_metrics_are_text_that_prometheus_reads() -> None:
    predictor = pteron.Predictor(build(dynamic_add_method()))
    predictor({"x": X3, "y": X3})
    text = pteron.metrics.text()
    assert 'pteron_rows_total{model="program, forward"} ' in text
    for line in text.splitlines():
        assert line.startswith("# ") or float(line.rpartition(" ")[2]) >= 0
    assert "pteron_process_resident_bytes" in text


def test_memory_of_the_process() -> None:
    found = pteron.metrics.memory()
    if found is None or found.proportional is None or found.private is None:
        pytest.skip("this system does not say")
    assert 0 < found.private <= found.proportional <= found.resident
