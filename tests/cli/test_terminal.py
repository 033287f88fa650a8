"""What commands show on a terminal, and that pipes get nothing of it."""

from __future__ import annotations

import builtins
import io
import sys
from typing import Any

import pytest

from pteron.cli import progress as module
from pteron.cli.progress import Progress, progress
from pteron.cli.tables import table
from pteron.devtools.text_table import text_table
from tests.support.waiting import until

HEADINGS, ROWS = ("name", "us"), [("[bold]x[/bold]", "1.5"), ("y", "22.0")]


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_is_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr(module, "SILENT_SECONDS", 0.0)
    monkeypatch.setattr(sys, "stderr", pipe)
    with progress("work") as shown:
        shown.show("half", 0.5)
    assert pipe.getvalue() == ""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(module, "EVERY_SECONDS", 0.001)
    with pytest.raises(KeyboardInterrupt):
        _interrupted(terminal)
    text = terminal.getvalue()
    assert "work: half, 0 s, about 0 s left" in text
    assert text.rstrip("\r").split("\r")[-1].strip() == ""


def _interrupted(terminal: Terminal) -> None:
    with progress("work") as shown:
        shown.show("half", 0.5)
        until(lambda: "half" in terminal.getvalue(), "the line")
        raise KeyboardInterrupt


def test_expected_time_follows_from_the_share(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    shown = Progress("work")
    assert shown._line("one", 0.25, 130.0) == "work: one, 0 s, about 2 min 0 s left"
    now[0] = 150.0
    assert shown._line("one", 0.25, 130.0) == "work: one, 50 s, about 1 min 10 s left"
    assert shown._line("one", None, 130.0) == "work: one, 50 s"


def test_tables_are_plain_in_pipes_and_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert table(HEADINGS, ROWS) == text_table(HEADINGS, ROWS)
    monkeypatch.setattr(sys, "stdout", Terminal())
    rich = table(HEADINGS, ROWS)
    assert rich != text_table(HEADINGS, ROWS)
    assert "[bold]x[/bold]" in rich
    assert "22.0" in rich
    plain_import = builtins.__import__

    def without_rich(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "rich":
            raise ImportError(name)
        return plain_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_rich)
    assert table(HEADINGS, ROWS) == text_table(HEADINGS, ROWS)
