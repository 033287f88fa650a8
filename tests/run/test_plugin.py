"""A backend compiled in another package: built from C against the header, installed, loaded, run."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import pteron
from pteron import plugins
from pteron.exir.schema import DataFileEntry
from pteron.exir.serialize.serialize_program import lay_out_data_file
from tests.support.programs import MethodBuilder, build

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ROOT / "rust" / "pteron-plugin"
X = np.arange(6, dtype=np.float32).reshape(2, 3)

pytest.importorskip("setuptools", reason="the example package is built with setuptools")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with the example package installed, on the path."""
    source = tmp_path_factory.mktemp("source")
    shutil.copytree(PLUGIN / "example", source, dirs_exist_ok=True)
    make = "from setuptools.build_meta import build_wheel; print(build_wheel('dist'))"
    done = subprocess.run(
        [sys.executable, "-c", make],
        cwd=source,
        env={**os.environ, "CFLAGS": "-Wall -Wextra -Werror -O1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    folder = tmp_path_factory.mktemp("site")
    (wheel,) = (source / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))


def _program(runtime: pteron.Runtime, blob: bytes = b"2.5", *, dtype: str = "float32") -> pteron.Program:
    m = MethodBuilder()
    dims = [{"symbol": "s0", "min": 0, "max": 4}, 3]
    x = m.input(m.tensor([4, 3], dtype, dynamic=True), "x", dims)
    out = m.output(m.tensor([4, 3], dtype, dynamic=True))
    m.ranges[out] = dims
    m.delegate("Scale", [x, out], blob)
    return pteron.load(build(m), runtime=runtime)


@pytest.fixture
def runtime(site: Path) -> pteron.Runtime:
    runtime = pteron.Runtime()
    plugins.load("Scale", runtime=runtime)
    return runtime


def test_the_header_comes_with_the_package() -> None:
    header = Path(pteron.get_include()) / "pteron_backend.h"
    assert header.read_bytes() == (PLUGIN / "include" / "pteron_backend.h").read_bytes()
    assert header.with_suffix(".rs").read_bytes() == (PLUGIN / "src" / "abi.rs").read_bytes()
    assert pteron.plugins.get_include() == pteron.get_include()


def test_installed_backends_are_listed_and_not_loaded(site: Path) -> None:
    assert plugins.installed()["Scale"] == "pteron-scale 0.1.0"
    with pytest.raises(pteron.MissingBackendError, match="Scale"):
        _program(pteron.Runtime()).load_method()
    with pytest.raises(LookupError, match=r"'Other'.*Scale"):
        plugins.load("Other")


def test_a_compiled_backend_computes(runtime: pteron.Runtime) -> None:
    assert "Scale" in runtime.backends
    method = _program(runtime).load_method()
    for rows in (2, 4, 0, 1):
        x = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
        np.testing.assert_array_equal(method(x), x * 2.5)
    del method
    gc.collect()


def test_failures_of_a_plugin_carry_its_text(runtime: pteron.Runtime) -> None:
    for blob in (b"", b"two", b"2.5x", b"9" * 100):
        with pytest.raises(pteron.DelegateError, match="the blob is not a number") as caught:
            _program(runtime, blob).load_method()
        assert caught.value.backend == "Scale"
    method = _program(runtime, dtype="int32").load_method()
    with pytest.raises(pteron.DelegateError, match="one float32 tensor in") as caught:
        method(X.astype(np.int32))
    assert "[arguments: x int32[2, 3], output0 int32[4, 3]]" in str(caught.value), "names of the method"


def test_availability_has_a_reason(runtime: pteron.Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    assert runtime.is_available("Scale")
    monkeypatch.setenv("PTERON_SCALE_IS_OFF", "1")
    assert runtime.unavailable_reason("Scale") == "PTERON_SCALE_IS_OFF is set"
    with pytest.raises(pteron.MissingBackendError, match="PTERON_SCALE_IS_OFF is set"):
        _program(runtime).load_method()


def test_capsules_under_a_wrong_name_or_of_another_kind_are_refused(site: Path) -> None:
    import pteron_scale  # type: ignore[import-not-found]

    runtime = pteron.Runtime()
    with pytest.raises(pteron.InputError, match=r"expected.*Scale.*got.*Other"):
        pteron.register_backend("Other", pteron_scale.backend, runtime=runtime)
    with pytest.raises(TypeError, match="init"):
        pteron.register_backend("Scale", np.zeros(1).__array_struct__, runtime=runtime)
    pteron.register_backend("Scale", pteron_scale.backend, runtime=runtime)
    with pytest.raises(pteron.DelegateError, match="Scale"):
        pteron.register_backend("Scale", pteron_scale.backend, runtime=runtime)


def test_a_compiled_delegate_reports_events_to_a_tracer(runtime: pteron.Runtime) -> None:
    class Events:
        def __init__(self) -> None:
            self.told: list[tuple[object, ...]] = []

        def delegate_event(self, step: object, backend: str, *event: object) -> None:
            self.told.append((backend, *event))

    method, tracer = _program(runtime).load_method(), Events()
    method.execute([X], tracer=tracer)
    (first, second) = tracer.told
    assert (first[:2], first[4]) == (("Scale", 7), b"")
    assert (second[:2], second[4]) == (("Scale", "multiply"), b"6 elements")
    assert all(0 < start <= end for _, _, start, end, _ in tracer.told)  # type: ignore[operator]
    method.execute([X])
    assert len(tracer.told) == 2


def _counting_program(runtime: pteron.Runtime) -> pteron.Program:
    m = MethodBuilder()
    x, out = m.input(m.tensor([2, 3]), "x"), m.output(m.tensor([2, 3]))
    m.delegate("Scale", [x, out], b"2", [("counter", b"model.calls")])
    return pteron.load(build(m), runtime=runtime)


def test_state_of_a_compiled_delegate_takes_part(runtime: pteron.Runtime, tmp_path: Path) -> None:
    program = _counting_program(runtime)
    method, other = program.load_method(), program.load_method()
    for _ in range(3):
        method(X)
    state = method.get_state()
    assert {name: (a.tolist(), a.dtype, a.shape) for name, a in state.items()} == {
        "model.calls": (3, np.dtype(np.int64), ())
    }
    assert other.get_state()["model.calls"] == 0, "sessions have state of their own"
    other.set_state(state)
    other(X)
    assert other.get_state()["model.calls"] == 4
    method.save_state(tmp_path / "state.ptd")
    method.reset_state()
    assert method.get_state()["model.calls"] == 0
    method.load_state(tmp_path / "state.ptd")
    assert method.get_state()["model.calls"] == 3
    with pytest.raises(pteron.DelegateError, match="negative"):
        method.set_state({"model.calls": np.array(-1)})
    with pytest.raises(pteron.InputError, match=r"model.calls.*int64"):
        method.set_state({"model.calls": np.array(1.5)})
    assert method.get_state()["model.calls"] == 3
    with pytest.raises(pteron.InputError, match="state"):
        program.run("forward", X)
    assert _program(runtime).load_method().get_state() == {}, "a delegate without a counter gives none"


def test_named_data_of_the_file_and_of_data_files(runtime: pteron.Runtime) -> None:
    m = MethodBuilder()
    x, out = m.input(m.tensor([2, 3]), "x"), m.output(m.tensor([2, 3]))
    m.delegate("Scale", [x, out], b"2.5")
    inside = pteron.load(build(m, named_data={"factor": b"-3"}), runtime=runtime)
    np.testing.assert_array_equal(inside.run("forward", X), X * -3)
    data = b"".join(lay_out_data_file([DataFileEntry("factor", b"0.5", 1, None)]).parts())
    outside = pteron.load(build(m), data=data, runtime=runtime)
    np.testing.assert_array_equal(outside.run("forward", X), X * 0.5)
