"""The peer that programs are compared with."""

from __future__ import annotations

from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def theirs() -> ModuleType:
    import executorch.extension.pybindings.portable_lib as theirs

    return theirs
