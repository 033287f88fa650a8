"""Delegates, node counts and blobs of vendors' compilers equal those that ExecuTorch makes: `make
test-vendors`.

pytest takes this file only where it is named: a lowering takes a process, and some need packages that the
development environment does not have (the `vendors` group of pyproject.toml).
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: (backend, model, are the blobs the same bytes?)
CASES = [
    ("xnnpack", "linear", True),
    ("xnnpack", "sum", True),
    ("xnnpack", "convolution net", True),
    ("xnnpack", "mobilenet", True),
    ("xnnpack int8", "convolution net", True),
    ("xnnpack dynamic int8", "two linears", True),
    ("native", "convolution net", False),
    ("native", "mobilenet", False),
    ("vulkan", "linear", True),
    ("vulkan", "sum", True),
    ("vulkan", "two linears", True),
    ("vulkan", "convolution net", True),
    ("vulkan", "mobilenet", True),
    ("webgpu", "two linears", True),
    ("coreml", "two linears", False),
]
#: What a backend needs from PyPI.
PACKAGES = {"coreml": "coremltools"}


def lowered(side: str, backend: str, model: str, folder: Path) -> dict[str, Any]:
    """What one side makes of a model, in a process of its own."""
    out = folder / f"{side}.json"
    paths = os.pathsep.join([str(ROOT), str(ROOT / "python")])
    done = subprocess.run(
        [sys.executable, "-m", "tests.vendors.lower", side, backend, model, str(out)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(out.read_text())
    return found


@pytest.mark.peer
@pytest.mark.parametrize(("backend", "model", "is_deterministic"), CASES)
def test_delegates_are_the_peer_s(backend, model, is_deterministic, tmp_path) -> None:
    package = PACKAGES.get(backend)
    is_there = package is None or importlib.util.find_spec(package) is not None
    assert is_there, f"{backend} needs {package}: make test-vendors installs it"
    ours, theirs = (lowered(side, backend, model, tmp_path) for side in ("ours", "theirs"))
    kept = ("nodes", "bytes", "digest", "named data") if is_deterministic else ("nodes", "bytes")
    assert [{key: each[key] for key in kept} for each in ours["delegates"]] == [
        {key: each[key] for key in kept} for each in theirs["delegates"]
    ]
    assert ours["delegates"]
