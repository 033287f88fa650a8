"""Where programs come from, and what a program tells about itself."""

from __future__ import annotations

import gc
import io
import mmap
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

import pteron
from tests.support.programs import MethodBuilder, add_method, build, delegate_method

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_every_source(tmp_path: Path) -> None:
    data = build(add_method())
    path = tmp_path / "add.pte"
    path.write_bytes(data)
    odd = memoryview(b"x" + data)[1:]
    sources = [data, bytearray(data), memoryview(data), odd, io.BytesIO(data), path, str(path)]
    for source in sources:
        np.testing.assert_array_equal(pteron.load(source).load_method()(X, X), X + X)
    with path.open("rb") as file:
        np.testing.assert_array_equal(pteron.load(file).run("forward", X, X), X + X)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        program = pteron.load(mapped)
    np.testing.assert_array_equal(program.run("forward", X, X), X + X)
    np.testing.assert_array_equal(pteron.load(path, mmap=False).run("forward", X, X), X + X)


def test_wrong_sources() -> None:
    for source in (3, None, ["x"]):
        with pytest.raises(TypeError, match="expected a path, bytes"):
            pteron.load(source)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="binary mode"):
        pteron.load(io.StringIO("text"))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        pteron.load(b"", nonsense=1)  # type: ignore[call-arg]


def test_changing_a_buffer_after_load_changes_nothing() -> None:
    data = bytearray(build(add_method()))
    program = pteron.load(data)
    data[:] = bytes(len(data))
    np.testing.assert_array_equal(program.run("forward", X, X), X + X)


def test_unmapped_files_may_change_after_load() -> None:
    m = MethodBuilder()
    x = m.input(m.tensor([4]), "x")
    out = m.output(m.tensor([4]))
    m.add(x, m.constant(np.arange(4, dtype=np.float32)), out)
    with tempfile.NamedTemporaryFile(suffix=".pte") as file:
        file.write(build(m))
        file.flush()
        program = pteron.load(file.name, mmap=False)
        file.truncate(10)
        np.testing.assert_array_equal(program.run("forward", np.zeros(4, np.float32)), np.arange(4))


def changed_after_load(path: Path, change: str, use_mmap: bool) -> subprocess.CompletedProcess[str]:
    """Loads ``path`` in a process of its own, changes it there, then uses the program."""
    script = f"""
import numpy as np, pteron
program = pteron.load({str(path)!r}, mmap={use_mmap})
method = program.load_method() if {use_mmap} else None
with open({str(path)!r}, "r+b") as file:
    {change}
assert program.methods == ("forward",) and program.operators("forward") == ("aten::add.out",)
if not {use_mmap}:
    x = np.zeros(100_000, np.float32)
    np.testing.assert_array_equal(program.load_method()(x), np.arange(100_000))
print("whole")
"""
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize(
    "change",
    [
        "file.truncate(0)",
        "file.truncate(4096)",
        "file.write(bytes(450_000))",
        "file.write(b'\\xff' * 450_000)",
    ],
)
def test_a_file_that_somebody_else_cuts_or_overwrites(tmp_path: Path, change: str) -> None:
    """Without a map nothing of the file is read after load; with one, its table at least is a copy."""
    m = MethodBuilder()
    x = m.input(m.tensor([100_000]), "x")
    out = m.output(m.tensor([100_000]))
    m.add(x, m.constant(np.arange(100_000, dtype=np.float32)), out)
    path = tmp_path / "big.pte"
    for use_mmap in (False, True):
        path.write_bytes(build(m))
        done = changed_after_load(path, change, use_mmap)
        assert (done.returncode, done.stdout) == (0, "whole\n"), (use_mmap, done.stderr)


def test_a_program_describes_itself() -> None:
    program = pteron.load(build(delegate_method("Demo"), named_data={"mine": b"abc"}))
    assert program.methods == ("forward",)
    assert program.operators("forward") == ("aten::add.out",)
    assert program.backends("forward") == ("Demo",)
    assert "delegate 0" in program.listing()
    assert [spec.name for spec in program.inputs("forward")] == ["x0", "x1"]
    named = program.named_data
    assert sorted(named) == ["mine", "pteron.interface"]
    blob = named["mine"]
    del program, named
    gc.collect()
    assert (bytes(blob), blob.readonly) == (b"abc", True)


def test_reprs(tmp_path: Path) -> None:
    data = build(add_method(), add_method(name="encode"))
    program = pteron.load(data)
    signature = "(x: float32[2, 3], y: float32[2, 3]) -> float32[2, 3]"
    assert repr(program) == f"pteron.Program, {len(data)} bytes\n  forward{signature}\n  encode{signature}"
    path = tmp_path / "model.pte"
    path.write_bytes(data)
    assert repr(pteron.load(path)).startswith(f"pteron.Program of {path}, {len(data)} bytes\n")
    assert repr(program.load_method("encode")) == (
        "pteron.Method encode(x: float32[2, 3], y: float32[2, 3]) -> float32[2, 3]"
    )


def test_plan_listing_has_a_line_per_step() -> None:
    assert "aten::add.out" in pteron.load(build(add_method())).plan_listing()


def test_the_executorch_shape() -> None:
    from pteron.runtime import Runtime, Verification

    runtime = Runtime.get()
    assert runtime is Runtime.get()
    assert "aten::add.out" in runtime.operator_registry.operator_names
    assert not runtime.backend_registry.is_available("Nothing")
    assert isinstance(runtime.backend_registry.registered_backend_names, list)
    program = runtime.load_program(build(add_method()), verification=Verification.Minimal)
    assert program.method_names == {"forward"}
    method = program.load_method("forward")
    assert program.load_method("forward") is method
    (result,) = method.execute([X, X])
    np.testing.assert_array_equal(result, X + X)
    for meta in (method.metadata, program.metadata("forward")):
        assert (meta.name(), meta.num_inputs(), meta.num_outputs()) == ("forward", 2, 1)
        info = meta.input_tensor_meta(1)
        assert (info.sizes(), info.dtype(), info.nbytes(), info.is_memory_planned()) == ((2, 3), 6, 24, True)
        assert meta.output_tensor_meta(0).sizes() == (2, 3)
        with pytest.raises(IndexError):
            meta.input_tensor_meta(2)
    with pytest.raises(KeyError):
        program.load_method("backward")
    with pytest.raises(TypeError):
        runtime.load_program(build(add_method()), verification=0)  # type: ignore[arg-type]
