"""The README's Python snippets run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SNIPPETS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)


def test_there_are_snippets() -> None:
    assert len(SNIPPETS) == 3


@pytest.mark.parametrize("number", range(3))
def test_snippet_runs(number: int, tmp_path: Path) -> None:
    code = SNIPPETS[number].replace('"schema/', f'"{ROOT}/schema/')
    (tmp_path / "snippet.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "snippet.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr


def test_export_example_is_short() -> None:
    lines = [line for line in SNIPPETS[1].splitlines() if line.strip()]
    assert len(lines) <= 15, "the export example should stay a 15-line read"
