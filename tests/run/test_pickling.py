"""Programs go to other processes by their file or bytes; limits and specs are copied; sessions stay where
they are.
"""

from __future__ import annotations

import copy
import io
import multiprocessing
import os
import pickle
import textwrap
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pteron
from pteron import program_cache, recipe
from pteron._native import layout_data_file
from tests.support.own_interpreter import output_of
from tests.support.programs import (
    MethodBuilder,
    add_method,
    build,
    call_tree,
    dynamic_add_method,
    leaf,
    schema,
    tree_text,
)

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(autouse=True)
def _forget() -> None:
    program_cache.forget()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "add.pte"
    path.write_bytes(build(add_method()))
    return path


def sent(value: Any) -> Any:
    """What another process gets, in this one."""
    return pickle.loads(pickle.dumps(value))


def doubled(program: pteron.Program) -> np.ndarray[Any, Any]:
    return program.run("forward", X, X)  # type: ignore[no-any-return]


def test_a_file_travels_by_its_path(file: Path) -> None:
    program = pteron.load(file, limits=pteron.Limits(arena_bytes=4096, time=2.5), mmap=False)
    data = pickle.dumps(program)
    assert len(data) < 1000
    arrived = pickle.loads(data)
    assert isinstance(arrived, pteron.Program)
    assert arrived is not program
    assert str(file) in repr(arrived)
    np.testing.assert_array_equal(doubled(arrived), X + X)


def test_a_relative_path_travels_too(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    data = pickle.dumps(pteron.load("add.pte"))
    monkeypatch.chdir("/")
    np.testing.assert_array_equal(doubled(pickle.loads(data)), X + X)


@pytest.mark.parametrize("form", [bytes, bytearray, memoryview, io.BytesIO])
def test_bytes_travel_with_the_pickle(form: Any) -> None:
    content = build(add_method())
    data = pickle.dumps(pteron.load(form(content)))
    assert content in data
    np.testing.assert_array_equal(doubled(pickle.loads(data)), X + X)


def test_a_process_has_one_program_for_all_pickles_of_a_file(file: Path) -> None:
    program = pteron.load(file)
    first = sent(program)
    assert sent(program) is first
    assert sent(first) is first
    assert sent(pteron.load(file)) is first
    assert sent(pteron.load(file, mmap=False)) is not first
    assert sent(pteron.load(file, limits=pteron.Limits(rank=3))) is not first
    assert sent(pteron.load(file.read_bytes())) is sent(pteron.load(file.read_bytes()))
    address = id(first)
    del first
    assert id(sent(program)) == address, "the last programs stay loaded"


def test_programs_that_nobody_holds_go_after_a_few_others(tmp_path: Path) -> None:
    held = []
    for rows in range(1, program_cache.KEPT + 3):
        path = tmp_path / f"{rows}.pte"
        path.write_bytes(build(add_method((rows, 2))))
        held.append(weakref.ref(sent(pteron.load(path))))
    assert [ref() is None for ref in held] == [True, True, *[False] * program_cache.KEPT]
    program_cache.forget()
    assert all(ref() is None for ref in held)


def test_limits_are_kept() -> None:
    program = pteron.load(build(add_method((64, 64))), limits=pteron.Limits(arena_bytes=1000))
    with pytest.raises(pteron.LimitExceeded):
        sent(program).load_method()


def with_external_weight() -> bytes:
    """`x + weight`, the weight in a data file."""
    m = MethodBuilder()
    x = m.input(m.tensor([2, 3]), "x")
    weight = m.tensor([2, 3], planned=False, buffer_name="weight")
    m.values[weight].extra_tensor_info.location = schema.TensorDataLocation.EXTERNAL
    m.add(x, weight, m.output(m.tensor([2, 3])))
    m.input_tree = call_tree([leaf()])
    m.output_tree = tree_text(leaf())
    return build(m)


def data_file(value: float) -> bytes:
    """A data file with that weight."""
    layout = schema.TensorLayout(6, [2, 3], [0, 1])
    contents = np.full((2, 3), value, np.float32).tobytes()
    head, pieces, size = layout_data_file([schema.DataFileEntry("weight", contents, 16, layout)])
    data = bytearray(size)
    data[: len(head)] = head
    for offset, piece in pieces:
        data[offset : offset + len(piece)] = piece
    return bytes(data)


@pytest.mark.parametrize("form", [list, "one", "dict", "bytes"])
def test_data_files_are_kept(tmp_path: Path, form: Any) -> None:
    path = tmp_path / "weights.ptd"
    path.write_bytes(data_file(2))
    given: Any = {
        list: [path],
        "one": path,
        "dict": {"weights": path},
        "bytes": io.BytesIO(path.read_bytes()),
    }[form]
    arrived = sent(pteron.load(with_external_weight(), data=given))
    np.testing.assert_array_equal(arrived.run("forward", X), X + 2)


def changed(path: Path, data: bytes, *, same_time: bool = False) -> None:
    """Writes the file anew, like another one that came to its place."""
    before = path.stat()
    path.write_bytes(data)
    later = before.st_mtime_ns if same_time else before.st_mtime_ns + 10**9
    os.utime(path, ns=(before.st_atime_ns, later))


def test_another_size_or_content_where_a_pickle_arrives_is_refused(file: Path) -> None:
    content = file.read_bytes()
    data = pickle.dumps(pteron.load(file))
    changed(file, content + b"x", same_time=True)
    with pytest.raises(pteron.ProgramError, match=f"another size.*expected {len(content)} bytes; got"):
        pickle.loads(data)
    changed(file, bytes([*content[:-1], content[-1] ^ 1]), same_time=True)
    with pytest.raises(pteron.ProgramError, match=r"another content.*others of the same size"):
        pickle.loads(data)
    changed(file, content)
    np.testing.assert_array_equal(doubled(pickle.loads(data)), X + X)
    file.unlink()
    with pytest.raises(FileNotFoundError):
        pickle.loads(data)


def test_another_data_file_is_refused_as_such(tmp_path: Path) -> None:
    path = tmp_path / "weights.ptd"
    path.write_bytes(data_file(2))
    data = pickle.dumps(pteron.load(with_external_weight(), data=path))
    changed(path, data_file(3), same_time=True)
    with pytest.raises(pteron.ExternalDataError, match="another content"):
        pickle.loads(data)


def test_a_file_that_changed_since_it_was_loaded_is_not_pickled(file: Path) -> None:
    program = pteron.load(file)
    os.chmod(file, 0o600)
    pickle.dumps(program)  # the content is the same
    changed(file, file.read_bytes())
    with pytest.raises(pteron.ProgramError, match="than when the program was loaded"):
        pickle.dumps(program)


def test_a_file_of_the_same_machine_that_nobody_touched_is_not_hashed_again(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = pteron.load(file)
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + 10**10)  # as if it was written ten seconds ago
    data = pickle.dumps(program)
    recipe._sha256.cache_clear()
    pickle.loads(data)
    assert recipe._sha256.cache_info().misses == 0
    os.chmod(file, 0o600)
    program_cache.forget()
    pickle.loads(data)
    assert recipe._sha256.cache_info().misses == 1


def test_a_file_written_a_moment_ago_is_hashed(file: Path) -> None:
    # The clock of a file system may not tell two writes apart that follow each other at once.
    os.utime(file)
    data = pickle.dumps(pteron.load(file))
    recipe._sha256.cache_clear()
    pickle.loads(data)
    assert recipe._sha256.cache_info().misses == 1


def test_a_method_refuses_with_the_reason(file: Path) -> None:
    method = pteron.load(file).load_method()
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(
            pteron.InputTypeError, match="memory, state and delegates of this process"
        ) as caught:
            attempt(method)
        assert isinstance(caught.value, TypeError), "what Python raises for what cannot be pickled"


def test_a_program_on_a_runtime_of_its_own_refuses_with_the_reason(file: Path) -> None:
    program = pteron.load(file, runtime=pteron.Runtime(num_threads=1))
    with pytest.raises(pteron.InputTypeError, match="on a Runtime of its own"):
        pickle.dumps(program)
    assert copy.deepcopy(program) is program


def test_copies_of_what_never_changes_are_the_thing_itself(file: Path) -> None:
    program = pteron.load(build(dynamic_add_method()))
    (spec, _) = program.inputs()
    rows = spec.shape[0]  # type: ignore[index]
    for value in (program, spec, rows, pteron.Limits(rank=3)):
        assert copy.copy(value) is value
        assert copy.deepcopy([value])[0] is value


def specs_of_every_kind() -> list[pteron.ValueSpec]:
    m = add_method()
    inputs = {"i": m.int(3), "b": m.bool(True), "f": m.double(2.5), "s": m.string("mode"), "n": m.none()}
    for name, value in inputs.items():
        m.input(value, name)
    r = m.int(2)
    m.input(r, "r", [0, 7])
    dynamic = dynamic_add_method()
    dynamic.name = "dynamic"
    program = pteron.load(build(m, dynamic))
    return [spec for name in program.methods for spec in (*program.inputs(name), *program.outputs(name))]


def test_specs_travel() -> None:
    specs = specs_of_every_kind()
    assert {spec.kind for spec in specs} == {"tensor", "int", "bool", "float", "str", "none"}
    for spec in specs:
        arrived = sent(spec)
        assert arrived is not spec
        assert arrived == spec
        assert hash(arrived) == hash(spec)
        assert (repr(arrived), arrived.shape, arrived.dim_order) == (repr(spec), spec.shape, spec.dim_order)
        assert (arrived.nbytes, arrived.is_planned) == (spec.nbytes, spec.is_planned)
        assert (arrived.value, type(arrived.value)) == (spec.value, type(spec.value))
        assert arrived.range == spec.range
    assert len(set(specs)) > 6
    assert specs[0] != specs[-1]
    rows = sent(pteron.DimRange(1, 8, "s0"))
    assert rows == pteron.DimRange(1, 8, "s0") != pteron.DimRange(1, 8)
    assert sent(specs) == specs


@pytest.mark.parametrize(
    "limits", [pteron.Limits(), pteron.Limits(arena_bytes=1 << 40, instructions=7, time=0.1, nesting=2)]
)
def test_limits_travel(limits: pteron.Limits) -> None:
    assert sent(limits) == limits


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_every_protocol(file: Path, protocol: int) -> None:
    arrived = pickle.loads(pickle.dumps(pteron.load(file), protocol))
    np.testing.assert_array_equal(doubled(arrived), X + X)


def test_load_says_of_wrong_arguments_what_it_always_said(tmp_path: Path) -> None:
    for source in (5, None, io.StringIO("text")):
        with pytest.raises(pteron.InputTypeError, match="source"):
            pteron.load(source)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError, match=r"nothing\.pte"):
        pteron.load(tmp_path / "nothing.pte")
    with pytest.raises(pteron.InputTypeError, match=r"data\[1\]"):
        pteron.load(build(add_method()), data=[data_file(1), 5])  # type: ignore[list-item]
    released = memoryview(b"x")
    released.release()
    with pytest.raises(ValueError, match="released"):
        pteron.load(released)


IN_A_CHILD = """
    import multiprocessing, pickle, sys
    import numpy as np
    import pteron
    from tests.run.test_pickling import X, doubled

    if __name__ == "__main__":
        program = pteron.load(sys.argv[2])
        context = multiprocessing.get_context(sys.argv[1])
        with context.Pool(2) as pool:
            results = pool.map(doubled, [program] * 4)
        print(all((result == X + X).all() for result in results))
"""


@pytest.mark.parametrize("start", ["spawn", "forkserver", "fork"])
def test_programs_are_arguments_of_worker_processes(file: Path, start: str, tmp_path: Path) -> None:
    if start not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {start} here")
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(IN_A_CHILD))
    assert (
        output_of(
            f"import runpy, sys; sys.argv = [{str(script)!r}, {start!r}, {str(file)!r}]; "
            f"runpy.run_path({str(script)!r}, run_name='__main__')"
        )
        == "True\n"
    )


def test_cloudpickle_takes_what_pickle_takes(file: Path) -> None:
    cloudpickle = pytest.importorskip("cloudpickle")
    program = pteron.load(file)
    doubling = pickle.loads(cloudpickle.dumps(lambda x: program.run("forward", x, x)))
    np.testing.assert_array_equal(doubling(X), X + X)
    with pytest.raises(pteron.InputTypeError, match="a Method cannot be pickled"):
        cloudpickle.dumps(program.load_method())
