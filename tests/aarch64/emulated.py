"""A plugin of pytest for an emulated Python: processes that tests start are emulated, too.

The machine would start `sys.executable` as a program of its own; the script that stands in for it starts the
emulator.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Names the script, which `setup.sh` wrote, instead of the interpreter."""
    script = Path(config.rootpath, ".cross", "aarch64", "python")
    if script.exists():
        sys.executable = str(script)
