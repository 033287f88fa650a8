"""Emitted programs, reviewed as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from pteron import _native
from pteron.exir import to_edge
from tests.exir.listed_models import LISTED
from tests.exir.loop_models import buffer_of
from tests.exir.small_models import PORTABLE, edge_program_of
from tests.support.goldens import compare

SMALL = ["accumulator", "convolutional", "everything", "mlp", "mlp_dynamic", "nested", "swapped_buffers"]
_GOLDEN = Path(__file__).parent / "golden"


def _instructions_and_values(listing: str) -> str:
    """The listing of the method; sizes of named data depend on where the tests lie on this machine."""
    return "\n".join(line for line in listing.splitlines() if not line.startswith("named data")) + "\n"


@pytest.mark.parametrize("name", [*SMALL, *LISTED])
def test_the_listing_is_the_reviewed_one(name: str) -> None:
    manager = edge_program_of(name) if name in SMALL else to_edge(LISTED[name]())
    _compare(name, manager.to_executorch(PORTABLE if name in SMALL else None).buffer)


@pytest.mark.parametrize("name", ["map_several", "recurrent", "associative_dynamic", "countdown", "nested"])
def test_the_listing_of_a_loop_is_the_reviewed_one(name: str) -> None:
    _compare(f"loop_{name}", buffer_of(name))


def _compare(name: str, buffer: bytes) -> None:
    listing = _instructions_and_values(_native.listing(buffer))
    compare(listing, _GOLDEN / f"{name}.txt")
