"""Tests of lifetimes ask for collections, many in a file."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(scope="module", autouse=True)
def _few_objects_to_collect() -> None:
    """What other tests of this process left alive is not walked through again: exports leave millions of
    objects, and each collection would take a second.
    """
    gc.collect()
    gc.freeze()
