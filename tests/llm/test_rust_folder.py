"""What the Rust tests of `pteron-llm` expect is what the generator in Python gives."""

from __future__ import annotations

import json

import pytest

from tests.llm.rust_folder import CASES, EXPECTED, texts


@pytest.fixture(scope="module")
def expected() -> dict[str, list[dict[str, object]]]:
    """The file that the Rust tests read."""
    found: dict[str, list[dict[str, object]]] = json.loads(EXPECTED.read_text())
    return found


def test_texts_are_those_that_rust_is_held_to(expected: dict[str, list[dict[str, object]]]) -> None:
    found = json.loads(json.dumps(texts()))
    for name, entries in expected.items():
        for entry, ours in zip(entries, found[name], strict=True):
            assert ours == entry
    assert found.keys() == expected.keys()


def test_cases_end_in_every_way_and_differ(expected: dict[str, list[dict[str, object]]]) -> None:
    cases = expected["cases"]
    assert len(cases) == len(CASES)
    assert {(case["finish_reason"], type(case["stop"])) for case in cases} == {
        ("length", type(None)),
        ("stop", int),
        ("stop", str),
    }
    assert len({json.dumps(case["tokens"]) for case in cases}) == len(cases)
