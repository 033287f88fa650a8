"""Runs a program of `python/examples` in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.forks import forks

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "python" / "examples"
#: Runs a script with arguments; importing torch is an ImportError in it.
WITHOUT_TORCH = (
    "import runpy, sys; sys.modules['torch'] = None; sys.argv = sys.argv[1:]; "
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)


def environment() -> dict[str, str]:
    """One thread of torch: two that wait for each other spin, which would be counted."""
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "ignore",
    }


def command(name: str, *arguments: object, torch: bool = True) -> list[str]:
    """The command line of an example; `torch=False` for steps that say they need none."""
    start = [sys.executable] if torch else [sys.executable, "-c", WITHOUT_TORCH]
    return [*start, str(EXAMPLES / f"{name}.py"), *map(str, arguments)]


def run(folder: Path, name: str, *arguments: object, torch: bool = True, said: str = "") -> str:
    """What the example prints, run in `folder` with `said` as its input; fails with its errors."""
    if torch:
        done = forks().run(EXAMPLES / f"{name}.py", *arguments, folder=folder, said=said)
    else:
        done = subprocess.run(
            command(name, *arguments, torch=False),
            cwd=folder,
            env=environment(),
            input=said,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    assert done.returncode == 0, done.stderr
    return done.stdout
