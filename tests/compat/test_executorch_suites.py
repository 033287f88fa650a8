"""The page of ExecuTorch's suites: what the runner says when it and the outcome differ."""

from __future__ import annotations

from tests.executorch_suites.__main__ import compare
from tests.executorch_suites.suites import EVERY, Listed, in_executorch, listed

THEIRS = {"one": {"A.a": "pass", "A.b": "pass", "A.c": "skip"}, "two": {"B.a": "pass"}}


def test_rows_are_tests_that_pass_in_executorch_and_have_reasons() -> None:
    known = in_executorch()
    rows = listed()
    assert len(rows) > 50
    for row in rows:
        assert row.module in known
        assert row.test == EVERY or known[row.module][row.test] == "pass"
        assert len(row.reason) > 10


def test_a_page_that_fits_has_no_problems() -> None:
    ours = {"one": {"A.a": "pass", "A.b": "fail: why", "A.c": "fail"}, "two": "ImportError: no"}
    assert compare(THEIRS, ours, [Listed("one", "A.b", "why"), Listed("two", EVERY, "why")]) == ([], [])


def test_what_does_not_fit_is_said() -> None:
    ours = {"one": {"A.a": "pass", "A.b": "fail: why"}, "two": {"B.a": "pass"}}
    rows = [Listed("one", "A.a", "why"), Listed("two", EVERY, "why"), Listed("one", "A.z", "?")]
    problems, unlisted = compare(THEIRS, ours, rows)
    assert problems == [
        "one A.a: listed, but it passes: take its row out",
        "one A.b: not listed: fail: why",
        "two: listed as a whole, but B.a passes",
        "one A.z: its row has no reason",
        "one A.z: listed, but no test that passes in ExecuTorch",
    ]
    assert unlisted == [Listed("one", "A.b", "?")]
