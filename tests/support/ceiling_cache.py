"""A cache of ceilings of its own for tests: nothing is read from the user's, or left there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def ceiling_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The cache folder of this process of tests, while those of a module run; measured once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
        yield
