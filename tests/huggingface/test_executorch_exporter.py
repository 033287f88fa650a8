"""`ExecutorchExporter` of transformers, as it is, with pteron in the place of ExecuTorch's exir.

Its XNNPACK delegates are made by the compiler in ExecuTorch's wheel, on top of pteron; ExecuTorch's own
runtime runs the files.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.huggingface.architectures import ARCHITECTURES

pytestmark = pytest.mark.peer
pytest.importorskip("executorch.runtime", reason="needs the executorch wheel")

HERE = Path(__file__).parent
#: What ends a process that hangs. An export takes a minute or two, many times as long on a busy machine.
SECONDS = 3600


def _run(script: str, *arguments: object) -> None:
    done = subprocess.run(
        [sys.executable, HERE / script, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", [row.name for row in ARCHITECTURES])
def test_the_exporter_works_unmodified(name: str, tmp_path: Path) -> None:
    _run("export_with_compat.py", name, tmp_path)
    _run("run_in_executorch.py", tmp_path)
