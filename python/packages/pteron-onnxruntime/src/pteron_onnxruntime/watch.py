"""Whether calls in progress were stopped: asked on one thread for the process."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import onnxruntime

if TYPE_CHECKING:
    from pteron._native import ExecuteContext

#: How often a call is asked, in seconds.
ASK_EVERY = 0.005
#: After how many times without a call the thread ends.
_PATIENCE = 100


class Watch:
    """A call stays on its thread and costs an entry of a dict: to wake a thread for each would cost more."""

    def __init__(self) -> None:
        self._calls: dict[int, tuple[ExecuteContext, onnxruntime.RunOptions]] = {}
        self._lock, self._is_awake = threading.Lock(), False

    def begin(self, ctx: ExecuteContext) -> onnxruntime.RunOptions:
        """Options that end the call of `ctx` when it is stopped; `end` has to follow."""
        options = onnxruntime.RunOptions()
        # The default. Where it is not set, ONNX Runtime 1.31 raises and catches an error in each call: 50 µs.
        options.add_run_config_entry("gpu_graph_id", "0")
        self._calls[id(options)] = (ctx, options)
        if not self._is_awake:
            self._wake()
        return options

    def end(self, options: onnxruntime.RunOptions) -> None:
        """The call of these options is over."""
        self._calls.pop(id(options), None)  # a fork in between has emptied it

    def _wake(self) -> None:
        with self._lock:
            if not self._is_awake:
                self._is_awake = True
                threading.Thread(target=self._ask, name="pteron-onnxruntime", daemon=True).start()

    def _ask(self) -> None:
        idle = 0
        while idle < _PATIENCE or not self._may_end():
            time.sleep(ASK_EVERY)
            idle = 0 if self._ask_each() else idle + 1

    def _ask_each(self) -> bool:
        """Whether there were calls. Apart, so that nothing refers to them while the thread sleeps."""
        calls = self._calls.copy()
        for ctx, options in calls.values():
            with suppress(RuntimeError):  # the call has ended in between
                options.terminate = ctx.is_cancelled()
        return bool(calls)

    def _may_end(self) -> bool:
        """Says first that the thread ends, then looks for a call that came before it said so."""
        with self._lock:
            self._is_awake = False
            self._is_awake = bool(self._calls)
            return not self._is_awake


#: Of this process.
WATCH = Watch()


def _in_a_fork() -> None:
    """Threads, and calls of other threads, are not in a forked child."""
    WATCH.__init__()  # type: ignore[misc]


os.register_at_fork(after_in_child=_in_a_fork)
