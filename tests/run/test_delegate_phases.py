"""Delegates written in Python that raise or call back, at every phase of their life.

Whatever they raise ends in an exception of the call that was made, nothing is destroyed twice or not at all,
and the next correct call works.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pteron
from tests.support.programs import build, delegate_method

X = np.arange(6, dtype=np.float32).reshape(2, 3)
PHASES = (
    "is_available",
    "init",
    "num_outputs",
    "execute",
    "get_state",
    "set_state",
    "reset_state",
    "destroy",
)
AT_LOAD = ("is_available", "init", "num_outputs")


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def _deep() -> None:
    _deep()


def _raise(error: BaseException) -> None:
    raise error


# What is done in a phase, once it is switched on.
DEEDS: dict[str, Callable[[], object]] = {
    "ValueError": lambda: _raise(ValueError("no luck")),
    "MemoryError": lambda: _raise(MemoryError()),
    "recursion": _deep,
    "without a text": lambda: _raise(Unprintable()),
    "an error of pteron": lambda: _raise(pteron.KernelError("inner")),
    "StopIteration": lambda: _raise(StopIteration()),
    "KeyboardInterrupt": lambda: _raise(KeyboardInterrupt()),
    "SystemExit": lambda: _raise(SystemExit(3)),
}


class Life:
    """A backend whose phases do `deed` while `phase` is theirs."""

    def __init__(self) -> None:
        self.phase = ""
        self.deed: Callable[[], object] = lambda: None
        self.alive = 0
        self.runtime = pteron.Runtime()
        pteron.register_backend("Life", self, runtime=self.runtime)
        self.program = pteron.load(build(delegate_method("Life")), runtime=self.runtime)

    def reached(self, phase: str) -> None:
        if phase == self.phase:
            self.deed()

    def is_available(self) -> bool:
        self.reached("is_available")
        return True

    def init(self, ctx: Any, processed: memoryview, specs: Any) -> Delegate:
        self.reached("init")
        return Delegate(self)


class Delegate:
    def __init__(self, life: Life) -> None:
        self.life = life
        self.calls = np.zeros(1, np.int64)
        self.is_counted = False

    @property
    def num_outputs(self) -> int:
        self.life.reached("num_outputs")
        self.life.alive += 1
        self.is_counted = True
        return 1

    def execute(self, ctx: Any, inputs: Any, outputs: Any) -> None:
        self.life.reached("execute")
        np.asarray(outputs[0])[...] = np.asarray(inputs[0]) + np.asarray(inputs[1])

    def get_state(self) -> dict[str, np.ndarray]:
        self.life.reached("get_state")
        return {"calls": self.calls}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        self.life.reached("set_state")
        self.calls = state["calls"]

    def reset_state(self) -> None:
        self.life.reached("reset_state")
        self.calls = np.zeros(1, np.int64)

    def destroy(self) -> None:
        assert self.is_counted, "destroyed before it was taken over"
        self.is_counted = False
        self.life.alive -= 1
        self.life.reached("destroy")


def _live(life: Life) -> None:
    """All phases once."""
    method = life.program.load_method()
    method(X, X)
    method.set_state(method.get_state())
    method.reset_state()
    del method
    gc.collect()


@pytest.mark.parametrize("deed", DEEDS)
@pytest.mark.parametrize("phase", PHASES)
def test_what_a_phase_raises(phase: str, deed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda info: unraisable.append(info.exc_type))
    life = Life()
    _live(life)
    life.phase, life.deed = phase, DEEDS[deed]
    is_control = deed in ("KeyboardInterrupt", "SystemExit")
    expected: tuple[type[BaseException], ...] = (pteron.PteronError,)
    if is_control:
        expected = (KeyboardInterrupt, SystemExit, pteron.PteronError)
    for _ in range(2):
        if phase == "destroy":
            _live(life)
            assert unraisable
        else:
            with pytest.raises(expected) as caught:
                _live(life)
            assert not isinstance(caught.value, pteron.InternalError), caught.value
            assert "\n" not in str(caught.value)
            del caught
        gc.collect()
        assert life.alive == 0, "as many destroyed as made"
    life.phase = ""
    _live(life)
    assert life.alive == 0


@pytest.mark.parametrize("phase", PHASES)
def test_a_phase_that_calls_back(phase: str) -> None:
    """A phase uses its own session, its program, its runtime; nothing hangs or is used twice."""
    life = Life()
    sessions = [life.program.load_method()]
    depth = [0]
    seen: set[str] = set()

    def call_back() -> None:
        if depth[0]:
            return
        depth[0] += 1
        try:
            uses: list[Callable[[], object]] = [
                lambda: sessions[0](X, X),
                lambda: sessions[0].get_state(),
                lambda: sessions[0].set_state({"calls": np.ones(1, np.int64)}),
                lambda: sessions[0].reset_state(),
                lambda: sessions[0].cancel(),
                lambda: life.program.load_method()(X, X),
                lambda: life.program.plan_listing("forward"),
                lambda: pteron.load(build(delegate_method("Life")), runtime=life.runtime).load_method(),
                lambda: pteron.register_backend("Life", life, runtime=life.runtime, replace=True),
                lambda: pteron.register_backend(f"L{len(seen)}", life, runtime=life.runtime, replace=True),
                lambda: life.runtime.backends,
                lambda: life.runtime.is_available("Life"),
            ]
            for use in uses:
                try:
                    use()
                except pteron.PteronError as error:
                    seen.add(type(error).__name__)
        finally:
            depth[0] -= 1

    life.phase, life.deed = phase, call_back
    method = sessions[0]
    if phase in AT_LOAD:
        method = life.program.load_method()
    with_cancel = (pteron.Cancelled,)
    for _ in range(2):
        try:
            np.testing.assert_array_equal(method(X, X), 2 * X)
        except with_cancel:
            assert phase == "execute"  # it cancels itself
        method.set_state(method.get_state())
        method.reset_state()
    assert seen <= {"MethodBusy"}
    if phase in ("execute", "get_state", "set_state", "reset_state"):
        assert seen == {"MethodBusy"}
    life.phase = ""
    np.testing.assert_array_equal(method(X, X), 2 * X)
    del method
    sessions.clear()
    gc.collect()
    assert life.alive == 0


@pytest.mark.parametrize("phase", ["execute", "get_state", "set_state", "reset_state"])
def test_a_phase_that_drops_everything(phase: str) -> None:
    life: list[Life] = [Life()]
    method: list[pteron.Method] = [life[0].program.load_method()]
    held = life[0]

    def drop() -> None:
        method.clear()
        life.clear()
        held.program = None  # type: ignore[assignment]
        held.runtime = None  # type: ignore[assignment]
        gc.collect()

    held.phase, held.deed = phase, drop
    if phase == "execute":
        np.testing.assert_array_equal(method[0](X, X), 2 * X)
    elif phase == "get_state":
        assert method[0].get_state()["calls"].tolist() == [0]
    elif phase == "set_state":
        method[0].set_state({"calls": np.ones(1, np.int64)})
    else:
        method[0].reset_state()
    gc.collect()
    assert not method
    assert held.alive == 0
