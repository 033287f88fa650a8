"""The budgets of processor time: counted by folder, related to the machine's speed, stated for each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cpu_budgets import BUDGETS, MARGIN, Budgets, Clock, folder_of

HERE = Path(__file__).parent


def report_of(nodeid: str, seconds: float) -> pytest.TestReport:
    """A report as the clock writes it."""
    properties = [("processor seconds", seconds)]
    return pytest.TestReport(nodeid, ("", 0, ""), {}, "passed", None, "call", user_properties=properties)


def test_every_folder_with_tests_has_a_budget() -> None:
    folders = {folder_of(str(path.relative_to(HERE.parent))) for path in HERE.rglob("test_*.py")}
    assert folders == BUDGETS.keys()


def test_a_folder_beyond_its_margin_is_named() -> None:
    budgets = Budgets()
    most = MARGIN * BUDGETS["tests/run"] * budgets.speed
    budgets.pytest_runtest_logreport(report_of("tests/run/test_load.py::test_a", 0.6 * most))
    assert budgets.excess() == []
    budgets.pytest_runtest_logreport(report_of("tests/run/test_state.py::test_b", 0.5 * most))
    assert [line.partition(":")[0] for line in budgets.excess()] == ["tests/run"]


def test_the_clock_counts_what_a_phase_takes() -> None:
    clock = Clock()
    noted = clock.pytest_runtest_makereport()
    next(noted)
    total = sum(range(3_000_000))
    with pytest.raises(StopIteration) as ended:
        noted.send(report_of("tests/test_a.py::test_c", 0.0))
    assert total
    assert ended.value.value.user_properties[-1][1] > 0.001
