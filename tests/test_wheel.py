"""The wheel that users install works in an empty environment with NumPy alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

PROGRAM = """
import sys
import numpy as np
import pteron
program = pteron.load(sys.argv[1])
x = np.ones((2, 4), dtype=np.float32)
print(np.asarray(program.run("forward", x)).shape, "torch" in sys.modules, pteron.__version__)
"""


@pytest.fixture(scope="module")
def wheel() -> Path:
    wheels = sorted((ROOT / "target" / "wheels").glob("pteron-*.whl"), key=lambda p: p.stat().st_mtime)
    assert wheels, "no wheel in target/wheels: run `make wheel`"
    return wheels[-1]


def test_wheel_is_abi3_and_small(wheel: Path) -> None:
    assert "abi3" in wheel.name
    assert wheel.stat().st_size < 15e6
    names = zipfile.ZipFile(wheel).namelist()
    assert "pteron/_native.abi3.so" in names
    assert "pteron/py.typed" in names
    assert "pteron/_native.pyi" in names
    assert {"pteron/include/pteron_backend.h", "pteron/include/pteron_backend.rs"} <= set(names)
    assert "pteron/plugins/templates/c/src/module/_run.c.in" in names
    assert "pteron/plugins/templates/rust/rust/border.rs.in" in names
    assert {"pteron/devtools/report/assets/report.css", "pteron/devtools/operator_features.txt"} <= set(names)
    assert [n for n in names if n.endswith(".dist-info/sboms/pteron.cyclonedx.json")]
    assert not [n for n in names if n.startswith(("examples/", "tests/"))]


@pytest.mark.slow
def test_wheel_runs_with_numpy_alone(wheel: Path, tmp_path: Path) -> None:
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    assert uv, "uv is part of the development environment"
    environment = tmp_path / "empty"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    subprocess.run([uv, "pip", "install", "--quiet", "--python", python, str(wheel)], check=True, timeout=300)
    listed = subprocess.run(
        [uv, "pip", "list", "--quiet", "--python", python],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    packages = {line.split()[0] for line in listed.stdout.splitlines()[2:]}
    assert packages == {"numpy", "pteron"}
    done = subprocess.run(
        [python, "-c", PROGRAM, str(ROOT / "schema" / "samples" / "linear_relu.pte")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "False" in done.stdout
