"""Programs, each exported once."""

from __future__ import annotations

import pytest

from tests.report import programs
from tests.support.ceiling_cache import ceiling_cache as ceiling_cache  # a fixture


@pytest.fixture(scope="session")
def files() -> dict[str, bytes]:
    """The files of the small programs."""
    return programs.files()
