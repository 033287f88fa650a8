"""Every test begins with a recording backend that has seen nothing."""

from __future__ import annotations

import pytest

from tests.backend.lowering_cases import record


@pytest.fixture(autouse=True)
def _empty_recorder() -> None:
    record()
