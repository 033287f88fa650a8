"""A kernel compiled in another package: built from C against the header, installed, loaded, run."""

from __future__ import annotations

import ctypes
import importlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pteron
from tests.support.programs import MethodBuilder, build, schema

EXAMPLE = Path(__file__).resolve().parents[2] / "rust" / "pteron-plugin" / "example-kernel"
OPERATOR = "shapes::clip_rows"

pytest.importorskip("setuptools", reason="the example package is built with setuptools")


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The capsule of the example package, which was built and installed outside of the repository."""
    source = tmp_path_factory.mktemp("source")
    shutil.copytree(EXAMPLE, source, dirs_exist_ok=True)
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
    yield importlib.import_module("pteron_clip._clip").kernel
    sys.path.remove(str(folder))


def _program(most: Any = 1.0, keep: list[int] | None = None, dtype: str = "float32") -> bytes:
    m = MethodBuilder()
    x = m.input(m.tensor([4, 2], dtype, planned=False, dynamic=True), "x", [{"min": 0, "max": 4}, 2])
    out = m.output(m.tensor([4, 2], dtype, dynamic=True))
    m.ranges[out] = [{"min": 0, "max": 4}, 2]
    number = m.double(most) if isinstance(most, float) else m.string(most)
    m.call(f"{OPERATOR}.out", [x, number, m.none() if keep is None else m.int_list(keep), out, out])
    return build(m)


def _loaded(kernel: Any, *args: Any, **options: Any) -> pteron.Method:
    runtime = pteron.Runtime()
    pteron.register_kernel(OPERATOR, kernel, runtime=runtime)
    return pteron.load(_program(*args, **options), runtime=runtime).load_method()


def test_it_computes(kernel: Any) -> None:
    method = _loaded(kernel)
    for rows in (1, 4, 0, 3):
        x = np.full((rows, 2), 3, np.float32)
        np.testing.assert_allclose(method(x), np.full((rows, 2), 0.5**0.5), rtol=1e-6)


def test_lists_reach_it(kernel: Any) -> None:
    got = _loaded(kernel, keep=[0, 2])(np.full((3, 2), 3, np.float32))
    np.testing.assert_allclose(got[:, 0], [3, 0.5**0.5, 3], rtol=1e-6)


def test_what_it_refuses_is_its_text(kernel: Any) -> None:
    with pytest.raises(
        pteron.KernelError, match=r"clip_rows\.out.*the plugin's kernel failed: expected a tensor"
    ):
        _loaded(kernel, "much")(np.zeros((1, 2), np.float32))
    with pytest.raises(pteron.KernelError, match="expected float32 matrices"):
        _loaded(kernel, dtype="float64")(np.zeros((1, 2)))


def test_a_shape_beyond_the_bound_is_the_runtimes_text(kernel: Any) -> None:
    m = MethodBuilder()
    x, out = m.input(m.tensor([4, 2], planned=False)), m.output(m.tensor([2, 2]))
    m.call(f"{OPERATOR}.out", [x, m.double(1.0), m.none(), out, out])
    runtime = pteron.Runtime()
    pteron.register_kernel(OPERATOR, kernel, runtime=runtime)
    with pytest.raises(pteron.KernelError, match=r"expected exactly \[2, 2\]; got \[4, 2\]"):
        pteron.load(build(m), runtime=runtime).run("forward", np.zeros((4, 2), np.float32))


def test_it_is_registered_under_its_own_name(kernel: Any) -> None:
    with pytest.raises(pteron.InputError, match="another name than its own"):
        pteron.register_kernel("shapes::other", kernel, runtime=pteron.Runtime())


def _capsule(table: ctypes.Structure) -> Any:
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(ctypes.addressof(table), b"pteron.kernel.v1", None)


class Table(ctypes.Structure):
    _fields_ = [
        ("abi_major", ctypes.c_uint32),
        ("struct_size", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
        ("plugin", ctypes.c_void_p),
        ("call", ctypes.c_void_p),
    ]


SIZE = ctypes.sizeof(Table)
TABLES = {
    "of another major version": Table(2, SIZE, b"t::op", None, 1),
    "whose table is too short": Table(1, SIZE - 8, b"t::op", None, 1),
    "without name or function": Table(1, SIZE, b"t::op", None, None),
    "whose name is not UTF-8": Table(1, SIZE, b"\xff", None, 1),
}


@pytest.mark.parametrize("what", TABLES)
def test_a_table_that_is_none_is_refused(what: str) -> None:
    with pytest.raises(pteron.InputError, match=f"a plugin gave a kernel {what}"):
        pteron.register_kernel("t::op", _capsule(TABLES[what]), runtime=pteron.Runtime())


def test_tensor_lists_and_bools_of_a_table_in_ctypes() -> None:
    """A table of any language will do: this one is filled by ctypes, and looks at lists only."""
    seen: list[tuple[int, int]] = []

    @ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3, ctypes.c_size_t, *[ctypes.c_void_p] * 3)
    def call(plugin: Any, context: Any, inputs: int, count: int, *rest: Any) -> int:
        words = ctypes.cast(inputs, ctypes.POINTER(ctypes.c_int64))
        size = 12  # words of a struct pteron_value
        seen.extend(((words[i * size] & 0xFFFFFFFF), words[i * size + 11]) for i in range(count))
        return 0

    table = Table(1, SIZE, b"t::op", None, ctypes.cast(call, ctypes.c_void_p))
    m = MethodBuilder()
    x, out = m.input(m.tensor([2], planned=False)), m.output(m.tensor([2]))
    tensors = m.value(schema.TensorList([x, x, x]))
    bools, doubles = m.value(schema.BoolList([True, False])), m.value(schema.DoubleList([0.5]))
    m.call("t::op.out", [x, tensors, bools, doubles, m.none(), out, out])
    runtime = pteron.Runtime()
    pteron.register_kernel("t::op", _capsule(table), runtime=runtime)
    pteron.load(build(m), runtime=runtime).run("forward", np.zeros(2, np.float32))
    assert seen == [(1, 0), (9, 3), (8, 2), (7, 1), (0, 0)]
