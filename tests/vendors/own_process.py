"""Modules of this folder in a process of their own: one has ExecuTorch, or pteron under its names."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pteron

ROOT = Path(__file__).resolve().parents[2]
_PATHS = (str(Path(pteron.__file__).parents[1]), str(ROOT))


def run_module(name: str, *arguments: object) -> None:
    """Runs `tests.vendors.<name>`, which has to end with status 0."""
    run_together([(name, *arguments)])


def run_together(calls: Sequence[tuple[object, ...]]) -> None:
    """As `run_module` for each (name, arguments...), all at once."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(_PATHS),
        # Programs that packages of vendors bring along.
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "OMP_NUM_THREADS": "1",
    }
    started = [
        subprocess.Popen(
            [sys.executable, "-m", f"tests.vendors.{name}", *map(str, arguments)],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name, *arguments in calls
    ]
    # Each has to be waited for before one of them may fail the test; a thread each reads what they print.
    with ThreadPoolExecutor(len(started)) as readers:
        errors = list(readers.map(lambda process: process.communicate()[1], started))
    for process, text in zip(started, errors, strict=True):
        assert process.returncode == 0, text[-4000:]
