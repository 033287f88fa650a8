"""`python -m pteron.plugins new`: what it writes is built, installed, listed, and passes its own tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from pteron.plugins.__main__ import main
from pteron.plugins.new_package import LANGUAGES, new_package
from tests.plugins.packages import install, run_python

pytest.importorskip("setuptools", reason="the packages are built with setuptools")

LISTED = {
    "c": "AcmeNpuBackend  acme-npu 0.1.0  native  1          yes           {site}/acme_npu/_run.abi3.so",
    "python": "AcmeNpuBackend  acme-npu 0.1.0  Python  -          yes           {site}/acme_npu/run.py",
}


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_new_package_is_built_installed_and_passes_its_tests(language: str, tmp_path: Path) -> None:
    package, site = tmp_path / "package", tmp_path / "site"
    status, text = run_python("-m", "pteron.plugins", "new", "acme-npu", package, "--language", language)
    assert status == 0, text
    wheel = install(package, site)
    assert ("-abi3-" if language == "c" else "-none-any") in wheel.name
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
    with pytest.raises(ValueError, match="unknown language 'fortran'; there are: c, python"):
        new_package("acme", tmp_path / "p", "fortran")
