"""What `make test` takes of long lists, and what is left to targets of their own (CONTRIBUTING.md)."""

from __future__ import annotations

import os

import pytest

#: Area → the target that sets `PTERON_<area>=all`.
TARGETS = {
    "LLM": "make test-llm",
    "MODELS": "make test-models",
    "OPS": "make test-all",
    "PAGES": "make test-pages",
    "QUANT": "make test-quant",
    "XNNPACK": "make test-xnnpack",
}


def is_full(area: str) -> bool:
    """Is all of an area asked for?"""
    return os.environ.get(f"PTERON_{area}") == "all"


def only_in(area: str) -> pytest.MarkDecorator:
    """Leaves a test, or a value of one, to the target of its area."""
    return pytest.mark.skipif(not is_full(area), reason=f"minutes: {TARGETS[area]}")
