"""Modules of this folder in a process of their own: one has ExecuTorch, or pteron under its names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pteron

ROOT = Path(__file__).resolve().parents[2]
_PATHS = (str(Path(pteron.__file__).parents[1]), str(ROOT))


def run_module(name: str, *arguments: object) -> None:
    """Runs `tests.vendors.<name>`, which has to end with status 0."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.vendors.{name}", *map(str, arguments)],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(_PATHS),
            # Programs that packages of vendors bring along.
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
