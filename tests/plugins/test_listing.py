"""What installed packages offer is listed and named in errors, and loaded when somebody asks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pteron
from pteron import plugins
from pteron.exir.backend.backend_details import find_backend
from tests.plugins.packages import written_package
from tests.support.programs import build, delegate_method

X = np.ones((2, 3), np.float32)
RUN = """
import numpy as np
class Delegate:
    num_outputs = 1
    def execute(self, ctx, inputs, outputs):
        np.add(np.asarray(inputs[0]), np.asarray(inputs[1]), out=outputs[0].numpy())
class Backend:
    def init(self, ctx, processed, specs):
        return Delegate()
backend = Backend()
"""
COMPILE = """
from pteron.exir.backend.backend_details import BackendDetails
class Listed(BackendDetails):
    pass
class ListedPartitioner:
    pass
"""
POINTS = (
    "[pteron.backends]\n{0} = {1}.run:backend\n[pteron.partitioners]\n{0} = {1}.compile:ListedPartitioner\n"
)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for packages, on the path."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def _write(site: Path, name: str, version: str, backend: str = "Listed") -> None:
    module = name.replace("-", "_")
    files = {f"{module}/__init__.py": "", f"{module}/run.py": RUN, f"{module}/compile.py": COMPILE}
    written_package(site, name, version, POINTS.format(backend, module), files)


def _program(runtime: pteron.Runtime, backend: str = "Listed") -> pteron.Program:
    return pteron.load(build(delegate_method(backend)), runtime=runtime)


def test_everything_is_listed_and_nothing_imported(site: Path) -> None:
    _write(site, "acme-run", "1.2")
    (site / "acme_run" / "__init__.py").write_text("raise AssertionError('imported')")
    written_package(site, "lost", "3", "[pteron.backends]\nLost = lost_module.run:backend\n")
    assert plugins.installed() == {"Listed": "acme-run 1.2", "Lost": "lost 3"}
    runtime = pteron.Runtime()
    listed, lost = plugins.details(runtime=runtime)
    path = str(site / "acme_run" / "run.py")
    assert listed == plugins.InstalledBackend("Listed", "acme-run", "1.2", "Python", None, path, True, False)
    assert lost == plugins.InstalledBackend("Lost", "lost", "3", "Python", None, None, False, False)
    with pytest.raises(AssertionError, match="imported"):
        plugins.load("Listed", runtime=runtime)


def test_a_library_is_known_by_the_name_in_it(site: Path) -> None:
    written_package(
        site, "native", "1", "[pteron.backends]\nN = native_one:backend\n", {"native_one/__init__.py": ""}
    )
    (site / "native_one" / "empty.so").write_bytes(b"")
    (site / "native_one" / "helper.so").write_bytes(b"\x7fELF pteron.backend.vX\0")
    (site / "native_one" / "run.so").write_bytes(b"\x7fELF" + bytes(100) + b"pteron_backend_v12\0")
    (found,) = plugins.details()
    assert (found.kind, found.interface, found.path) == ("native", 12, str(site / "native_one" / "run.so"))


def test_a_missing_run_half_names_the_package_that_brings_it(site: Path) -> None:
    _write(site, "acme-hint", "1.2")
    runtime = pteron.Runtime()
    with pytest.raises(pteron.MissingBackendError) as caught:
        _program(runtime).load_method()
    offer = "acme-hint 1.2 is installed and provides it: load it with pteron.plugins.load('Listed')"
    assert caught.value.hint == offer
    assert str(caught.value).endswith(f"(hint: {offer})")
    assert not runtime.is_available("Listed")
    with pytest.raises(pteron.MissingBackendError, match="register_backend"):
        _program(runtime, "Other").load_method()


def test_a_missing_compile_half_names_the_package_that_brings_it(site: Path) -> None:
    _write(site, "acme-compile", "2.0")
    says = r"acme-compile 2\.0 is installed and provides it: pteron\.plugins\.load_partitioner\('Listed'\)"
    with pytest.raises(NotImplementedError, match=says):
        find_backend("Listed")
    assert plugins.load_partitioner("Listed").__name__ == "ListedPartitioner"
    assert find_backend("Listed").__module__ == "acme_compile.compile"
    with pytest.raises(LookupError, match=r"offers the partitioner 'Other' \(there are: Listed\)"):
        plugins.load_partitioner("Other")


def test_what_a_program_needs_is_loaded_on_request(site: Path) -> None:
    _write(site, "acme-needed", "1")
    runtime = pteron.Runtime()
    program = _program(runtime)
    assert plugins.load_needed(program, runtime=runtime) == ("Listed",)
    np.testing.assert_array_equal(program.run("forward", X, X), X + X)
    assert plugins.load_needed(program, runtime=runtime) == ()
    assert [each.is_loaded for each in plugins.details(runtime=runtime)] == [True]
    assert plugins.load_needed(_program(runtime, "Other"), runtime=runtime) == ()


def test_a_name_that_several_packages_offer_is_not_chosen_by_chance(site: Path) -> None:
    _write(site, "acme-one", "1")
    _write(site, "acme-two", "2")
    assert plugins.installed() == {"Listed": "acme-one 1, acme-two 2"}
    runtime = pteron.Runtime()
    several = (
        r"several .* offer the backend 'Listed' \(these do: acme-one 1, acme-two 2\); pass distribution="
    )
    with pytest.raises(LookupError, match=several):
        plugins.load("Listed", runtime=runtime)
    with pytest.raises(LookupError, match="acme-three does not offer the backend 'Listed'"):
        plugins.load("Listed", runtime=runtime, distribution="acme-three")
    plugins.load("Listed", runtime=runtime, distribution="acme-two")
    np.testing.assert_array_equal(_program(runtime).run("forward", X, X), X + X)
