"""Python code in an interpreter of its own: for imports, forks, signals and the end of a process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pteron

ROOT = Path(__file__).resolve().parents[2]
_PATHS = [str(Path(pteron.__file__).parents[1]), str(ROOT)]


def run_alone(
    code: str, *arguments: object, options: tuple[str, ...] = (), timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Runs `code`, which has to end by itself with status 0; `pteron` and `tests` are there to import."""
    inherited = filter(None, [os.environ.get("PYTHONPATH")])
    done = subprocess.run(
        [sys.executable, *options, "-c", textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*_PATHS, *inherited])},
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done
    return done


def output_of(code: str, *arguments: object) -> str:
    """What `code` prints; it says nothing of errors."""
    done = run_alone(code, *arguments)
    assert done.stderr == "", done
    return done.stdout
