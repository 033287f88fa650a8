"""The thread that asks calls whether they were stopped: it starts, sees every call, ends, starts again."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from pteron_onnxruntime import watch


class Call:
    """What a delegate is given of a call; `is_cancelled` raises after the call, as pteron's does."""

    def __init__(self, *, stopped: bool = False, over: bool = False) -> None:
        self.stopped, self.over, self.asked = stopped, over, 0

    def is_cancelled(self) -> bool:
        self.asked += 1
        if self.over:
            raise RuntimeError("the call is over")
        return self.stopped


def until(condition: Any) -> None:
    for _ in range(2000):
        if condition():
            return
        time.sleep(0.005)
    raise AssertionError("it did not come")


def test_calls_in_progress_are_asked() -> None:
    made, first, second = watch.Watch(), Call(), Call(stopped=True)
    options: list[Any] = [made.begin(call) for call in (first, second)]  # type: ignore[arg-type]
    until(lambda: options[1].terminate and first.asked)
    assert not options[0].terminate
    first.stopped = True
    until(lambda: options[0].terminate)
    for each in options:
        made.end(each)
    assert not made._calls


def test_a_call_that_is_over_is_no_error() -> None:
    made, over, other = watch.Watch(), Call(over=True), Call(stopped=True)
    options: list[Any] = [made.begin(call) for call in (over, other)]  # type: ignore[arg-type]
    until(lambda: over.asked > 1 and options[1].terminate)
    assert not options[0].terminate


def test_the_thread_ends_and_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_PATIENCE", 2)
    made = watch.Watch()
    for _ in range(3):
        options: Any = made.begin(Call(stopped=True))  # type: ignore[arg-type]
        until(lambda options=options: options.terminate)
        assert made._is_awake
        made.end(options)
        until(lambda: not made._is_awake)


def test_a_fork_has_a_watch_of_its_own() -> None:
    held: Any = watch.WATCH.begin(Call())  # type: ignore[arg-type]
    child = os.fork()
    if child == 0:
        options: Any = watch.WATCH.begin(Call(stopped=True))  # type: ignore[arg-type]
        for _ in range(2000):
            if options.terminate:
                os._exit(0)
            time.sleep(0.005)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    watch.WATCH.end(held)
