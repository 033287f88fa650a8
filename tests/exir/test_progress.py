"""What a long lowering says while it runs."""

from __future__ import annotations

import logging
from itertools import pairwise

import pytest
import torch

import pteron
from pteron.backends.demo import AddMulPartitionerDemo
from pteron.exir import progress, to_edge, to_edge_transform_and_lower
from pteron.exir.progress import progress_of, step
from tests.exir.small_models import captured
from tests.support.waiting import until


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch) -> None:
    monkeypatch.delenv(progress.VARIABLE, raising=False)


def _lines(text: str) -> list[str]:
    return [line.split(" s  ")[1] for line in text.splitlines()]


def test_a_lowering_names_its_steps_with_counts(monkeypatch, capsys) -> None:
    monkeypatch.setenv(progress.VARIABLE, "1")
    to_edge(captured("mlp")).to_executorch()
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in lines] == ["to_edge"] * 3 + ["to_executorch"] * 4
    assert _lines("\n".join(lines)) == [
        "'forward': 9 nodes to core ATen",
        "'forward': 11 nodes to the edge dialect",
        "finished",
        "passes over 11 nodes",
        "memory plan of 'forward', 9 nodes",
        "values and instructions",
        "finished",
    ]


def test_a_short_lowering_is_silent(capsys, caplog) -> None:
    with caplog.at_level(logging.INFO, logger="pteron.exir.progress"), progress_of("lowering"):
        step("all of it")
    assert capsys.readouterr().err == ""
    assert caplog.records == []


def test_a_long_step_is_shown_while_it_runs(monkeypatch, caplog) -> None:
    monkeypatch.setattr(progress, "SILENT_SECONDS", 0.01)
    with caplog.at_level(logging.INFO, logger="pteron.exir.progress"), progress_of("lowering"):
        step("the long one")
        until(lambda: caplog.records, "a record")
        assert _lines(caplog.messages[0]) == ["the long one"]
        step("the next one")
        with progress_of("within"):
            step("a part")
    assert _lines("\n".join(caplog.messages)) == ["the long one", "the next one", "a part", "finished"]
    assert {message.split(":")[0] for message in caplog.messages} == {"lowering"}


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    """What the clock says, to be changed."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_the_whole_is_expected_in_proportion_to_the_parts_that_are_done(clock) -> None:
    work = progress.Work()
    assert work.expected() is None
    with work.part(0.2):
        clock[0] += 4.0
        assert work.expected() is None
        work.reach(0.5)
        # A tenth took four seconds.
        assert work.expected() == pytest.approx(40.0)
        with work.part(0.25):
            clock[0] += 2.0
        assert work.expected() == pytest.approx(6.0 / 0.15)
        clock[0] += 2.0
    assert work.expected() == pytest.approx(8.0 / 0.2)
    # The rest of the time in which this part was to end, and then the part is taken to be at its end.
    with work.part(0.5):
        clock[0] += 20.0
        assert work.expected() == pytest.approx(40.0)
        clock[0] += 35.0
        assert work.expected() == pytest.approx(63.0 / 0.7)
    with work.part(1.0):
        clock[0] += 1.0
        # More than what is left of the whole: it ends with it.
        with work.part(5.0):
            work.reach(1.0)
        assert work.expected() is None


def test_lines_have_the_expected_time(monkeypatch, capsys, clock) -> None:
    monkeypatch.setenv(progress.VARIABLE, "1")
    with progress_of("lowering"):
        step("the first half")
        with progress.part(0.5):
            clock[0] += 3.0
        step("the second half")
        with progress.part(0.5):
            clock[0] += 3.0
    assert capsys.readouterr().err.splitlines() == [
        "lowering:    0.0 s  the first half",
        "lowering:    3.0 s of about 6 s  the second half",
        "lowering:    6.0 s  finished",
    ]


def test_a_step_that_takes_long_is_written_again(monkeypatch, caplog) -> None:
    monkeypatch.setattr(progress, "SILENT_SECONDS", 0.01)
    monkeypatch.setattr(progress, "EVERY_SECONDS", 0.01)
    with caplog.at_level(logging.INFO, logger="pteron.exir.progress"), progress_of("lowering"):
        step("the long one")
        until(lambda: len(caplog.records) >= 3, "three records")
    assert set(_lines("\n".join(caplog.messages[:3]))) == {"the long one"}


def _shares(monkeypatch) -> list[float]:
    """What is done of each work that is made from now on, as it is told."""
    found: list[float] = []
    reach = progress.Work.reach

    def noted(work: progress.Work, share: float) -> None:
        reach(work, share)
        found.append(work._done)

    monkeypatch.setattr(progress.Work, "reach", noted)
    return found


@pytest.mark.parametrize("packed", [False, True])
def test_the_parts_of_an_export_are_the_whole(monkeypatch, packed) -> None:
    shares = _shares(monkeypatch)
    pteron.export(torch.nn.Linear(4, 4).eval(), (torch.randn(2, 4),), packed_weights=packed, report=False)
    assert shares == sorted(shares)
    assert len(set(shares)) > 30
    assert shares[-1] == pytest.approx(1.0)
    assert max(b - a for a, b in pairwise(shares)) < 0.4


def test_the_parts_of_a_delegation_are_the_whole(monkeypatch) -> None:
    shares = _shares(monkeypatch)
    to_edge_transform_and_lower(captured("mlp"), partitioner=[AddMulPartitionerDemo()])
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)


class _Terminal:
    def __init__(self) -> None:
        self.text = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None: ...


@pytest.mark.parametrize(("switch", "says"), [(None, ["a", "finished"]), ("0", [])])
def test_a_terminal_shows_it_unless_it_is_switched_off(monkeypatch, switch, says) -> None:
    terminal = _Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(progress, "SILENT_SECONDS", 0.0)
    if switch is not None:
        monkeypatch.setenv(progress.VARIABLE, switch)
    with progress_of("lowering"):
        step("a")
    assert _lines(terminal.text) == says


@progress_of("lowering")
def _failing() -> None:
    step("a")
    raise ValueError


def test_an_error_ends_the_progress(monkeypatch, capsys) -> None:
    monkeypatch.setenv(progress.VARIABLE, "1")
    with pytest.raises(ValueError):
        _failing()
    step("outside")
    assert _lines(capsys.readouterr().err) == ["a", "stopped"]
