"""Forked scripts: how they end, what they find, and what they do not find."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.forks import forks


def ended(code: str, folder: Path, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """How a script of this code ends."""
    (folder / "script.py").write_text(code)
    return forks().run(Path("script.py"), "given", folder=folder, said="said", timeout=timeout)


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("1 / 0", 1, "ZeroDivisionError"),
        ("raise SystemExit('refused')", 1, "refused"),
        ("raise SystemExit(3)", 3, ""),
        ("import not_there", 1, "ModuleNotFoundError"),
        ("import os; os.abort()", -signal.SIGABRT, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
    ],
)
def test_a_failure_is_seen(code: str, status: int, error: str, tmp_path: Path) -> None:
    done = ended(code, tmp_path)
    assert done.returncode == status
    assert error in done.stderr


def test_a_script_finds_what_it_would_find_alone(tmp_path: Path) -> None:
    code = """
import atexit, os, sys
atexit.register(print, "at the end")
assert __name__ == "__main__" and __file__ == "script.py", (__name__, __file__)
assert sys.argv == ["script.py", "given"] and sys.path[0] == os.getcwd()
assert not [name for name in sys.modules if name.partition(".")[0] == "pteron"]
import torch
fresh = torch.Generator().manual_seed(torch.initial_seed())
assert torch.equal(torch.rand(3), torch.rand(3, generator=fresh))
print(input())
"""
    done = ended(code, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "said\nat the end\n", "")


def test_a_script_that_does_not_end_is_ended(tmp_path: Path) -> None:
    assert ended("while True: pass", tmp_path, timeout=0.5).returncode == -signal.SIGKILL
