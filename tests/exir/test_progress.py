"""What a long lowering says while it runs."""

from __future__ import annotations

import logging

import pytest

from pteron.exir import progress, to_edge
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
