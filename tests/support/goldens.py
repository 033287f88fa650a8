"""Reviewed texts in files: compared, and written where `make bless` sets `PTERON_BLESS`."""

from __future__ import annotations

import os
from pathlib import Path


def is_blessing() -> bool:
    """Are goldens written from what the code does now?"""
    return os.environ.get("PTERON_BLESS") == "1"


def compare(text: str, path: Path) -> None:
    """Fails where a text is not the reviewed one."""
    if is_blessing():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.exists(), f"{path.name} is not there: make bless, and review it"
    assert text == path.read_text(), f"{path.name} differs: if that is meant, make bless, and review it"
