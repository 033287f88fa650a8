"""The commands of the page on the command line run as they stand."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how-to" / "command-line.md"
BLOCK = re.compile(r"^```console\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
LINES = [
    line[2:]
    for block in BLOCK.findall(PAGE.read_text())
    for line in block.splitlines()
    if line.startswith("$ ")
]


def test_commands(model_file: Path, tmp_path: Path) -> None:
    for name in ("model.pte", "old.pte"):
        shutil.copy(model_file, tmp_path / name)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    assert len(LINES) > 20
    # In order: what one writes another reads.
    for line in LINES:
        done = subprocess.run(
            line.replace("pteron ", f"{sys.executable} -m pteron ", 1),
            shell=True,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        found = {0, 1} if " diff " in line or "--compare" in line else {0}
        assert done.returncode in found, f"{line}: {done.stderr}"
