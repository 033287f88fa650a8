"""Two plugins with different versions of one dependency, and symbols of the same names, in one process."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import pytest

import pteron
from pteron.plugins.brought_along import Linkage, linkage, refuse_swapped
from tests.plugins.packages import run_python, written_package

SOURCE = Path(__file__).with_name("versioned.c")
ROOT = Path(__file__).resolve().parents[2]

# The plugins of a process that asks for global symbols: theirs stay local all the same.
PROGRAM = """
import os, sys
sys.path.insert(0, sys.argv[1])
sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)
import numpy as np
import pteron
from tests.support.programs import MethodBuilder, build
x = np.zeros((2, 3), np.float32)
for name in ("Two", "One"):
    pteron.plugins.load(name)
assert sys.getdlopenflags() == os.RTLD_NOW | os.RTLD_GLOBAL
for name in ("One", "Two", "One"):
    m = MethodBuilder()
    given, out = m.input(m.tensor([2, 3]), "x"), m.output(m.tensor([2, 3]))
    m.delegate(name, [given, out], b"")
    print(name, pteron.load(build(m)).run("forward", x)[0, 0])
for each in pteron.plugins.details():
    print(each.name, each.distribution, each.version, each.kind, each.is_loaded)
"""


def _compile(*arguments: object) -> None:
    done = subprocess.run(
        ["cc", "-shared", "-fPIC", "-Wall", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def _install(site: Path, name: str, version: int, kind: str, soname: str | None = None) -> None:
    """The package of a plugin that brings the dependency of that version; its name says so unless given."""
    package = site / f"plugin_{name.lower()}"
    package.mkdir(parents=True)
    part = package / "part.c"
    part.write_text(f"int shared_part_version(void) {{ return {version}; }}")
    options: list[object] = [f'-DNAME="{name}"', "-I", pteron.get_include(), SOURCE]
    if kind == "linked in":
        options.append(part)
    else:
        library = package / (soname or f"libshared_part.so.{version}")
        _compile(f"-Wl,-soname,{library.name}", "-o", library, part)
        options += [library, "-Wl,-rpath,$ORIGIN"]
    if kind == "extension module":
        options += ["-DPYTHON", "-I", sysconfig.get_paths()["include"]]
        _compile("-o", package / "_run.so", *options)
        text = f"from {package.name}._run import backend"
    else:
        _compile("-o", package / "_run.so", *options)
        text = "from pathlib import Path; import pteron; "
        text += "backend = pteron.plugins.open_library(Path(__file__).with_name('_run.so'))"
    points = f"[pteron.backends]\n{name} = {package.name}:backend\n"
    written_package(
        site, f"plugin-{name.lower()}", f"{version}.0", points, {f"{package.name}/__init__.py": text}
    )


@pytest.mark.parametrize("kind", ["extension module", "library", "linked in"])
def test_each_plugin_sees_its_own_version(kind: str, tmp_path: Path) -> None:
    _install(tmp_path, "One", 1, kind)
    _install(tmp_path, "Two", 2, kind)
    status, text = run_python("-c", PROGRAM, ROOT, site=tmp_path)
    assert status == 0, text
    assert text.splitlines() == [
        "One 101.0",
        "Two 102.0",
        "One 201.0",
        "One plugin-one 1.0 native True",
        "Two plugin-two 2.0 native True",
    ]


@pytest.mark.parametrize("kind", ["extension module", "library"])
def test_a_plugin_does_not_run_with_the_library_of_another(kind: str, tmp_path: Path) -> None:
    _install(tmp_path, "One", 1, kind, "libshared_part.so")
    _install(tmp_path, "Two", 2, kind, "libshared_part.so")
    status, text = run_python("-c", PROGRAM, ROOT, site=tmp_path)
    assert status == 1
    ours, theirs = (tmp_path / f"plugin_{name}" for name in ("one", "two"))
    assert text.splitlines()[-1] == (
        f"OSError: {ours}/_run.so brings along libshared_part.so, and another library of this name is "
        f"loaded already: {theirs}/libshared_part.so; the system's loader keeps one of a name in a process, "
        "so the plugin would run with that one. Give the library a name of its own where the plugin is built "
        "(auditwheel repair does, or patchelf --set-soname before linking), or load the plugins in "
        "processes of their own"
    )


def test_plugins_may_bring_the_same_library(tmp_path: Path) -> None:
    _install(tmp_path, "One", 1, "library", "libshared_part.so")
    _install(tmp_path, "Two", 1, "library", "libshared_part.so")
    status, text = run_python("-c", PROGRAM, ROOT, site=tmp_path)
    assert status == 0, text
    assert text.splitlines()[:3] == ["One 101.0", "Two 101.0", "One 201.0"]


def test_files_that_are_no_libraries_bring_nothing(tmp_path: Path) -> None:
    source, library = tmp_path / "part.c", tmp_path / "part.so"
    source.write_text("int part;")
    _compile("-Wl,-soname,libpart.so.7", "-Wl,-rpath,$ORIGIN/lib:/opt/lib", "-o", library, source)
    whole, said = library.read_bytes(), linkage(library)
    assert (said.soname, said.folders) == ("libpart.so.7", ("$ORIGIN/lib", "/opt/lib"))
    cut = tmp_path / "cut.so"
    for length in (0, 4, 30, 63, 100, 300, 1000, len(whole) // 2):
        cut.write_bytes(whole[:length])
        assert linkage(cut).soname in (None, "libpart.so.7")
        refuse_swapped(cut)
    assert linkage(tmp_path / "missing.so") == linkage(source) == Linkage(None, (), ())


def test_symbols_that_are_global_would_not_stay_apart(tmp_path: Path) -> None:
    """What the test above would see otherwise: one plugin runs with the part of the other."""
    _install(tmp_path, "One", 1, "extension module")
    _install(tmp_path, "Two", 2, "extension module")
    imports = PROGRAM.replace(
        "pteron.plugins.load(name)",
        "pteron.register_backend(name, __import__('plugin_' + name.lower()).backend)",
    )
    status, text = run_python("-c", imports, ROOT, site=tmp_path)
    assert status == 0, text
    assert text.splitlines()[0] == "One 102.0"


def test_what_is_no_plugin_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "part.c"
    source.write_text("int nothing; const void *pteron_backend_v2(void) { return 0; }")
    _compile("-o", tmp_path / "none.so", source)
    with pytest.raises(OSError, match=r"none\.so exports no pteron_backend_v1"):
        pteron.plugins.open_library(tmp_path / "none.so")
    source.write_text("const void *pteron_backend_v1(void) { return 0; }")
    _compile("-o", tmp_path / "null.so", source)
    with pytest.raises(OSError, match="gave no table"):
        pteron.plugins.open_library(tmp_path / "null.so")
    with pytest.raises(OSError, match="missing"):
        pteron.plugins.open_library(tmp_path / "missing.so")
