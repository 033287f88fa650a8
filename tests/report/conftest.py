"""Programs, each exported once."""

from __future__ import annotations

import pytest

from tests.report import programs


@pytest.fixture(scope="session")
def files() -> dict[str, bytes]:
    """The files of the small programs."""
    return programs.files()
