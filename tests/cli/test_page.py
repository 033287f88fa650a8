"""The commands of the page on the command line run as they stand."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how-to" / "command-line.md"
BLOCK = re.compile(r"^```console\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
LINES = [
    line[2:]
    for block in BLOCK.findall(PAGE.read_text())
    for line in block.splitlines()
    if line.startswith("$ ")
]


@pytest.mark.parametrize("number", range(len(LINES)), ids=lambda number: LINES[number].split()[1])
def test_command(number: int, model_file: Path, tmp_path: Path) -> None:
    for name in ("model.pte", "old.pte"):
        shutil.copy(model_file, tmp_path / name)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    # Earlier commands of the page may have written what this one reads.
    for line in LINES[: number + 1]:
        if line is not LINES[number] and not any(word in line for word in (">", "--save", " -o ")):
            continue
        done = subprocess.run(
            line.replace("pteron ", f"{sys.executable} -m pteron ", 1),
            shell=True,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in (0, 1 if " diff " in line or "--compare" in line else 0), done.stderr
