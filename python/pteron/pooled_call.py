"""Calls of stateless methods in threads of the process: `await program.run_async(...)` and
`program.submit(...)`.

A call runs in a session of the program's pool, and a token stops it. As many calls run at once as the process
has processors, others wait.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any

from pteron._native import CancelToken
from pteron.errors import Cancelled
from pteron.metrics import CallCounts
from pteron.recipe import label_of
from pteron.thread_cap import processors, threads_of_environment

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future, ThreadPoolExecutor

    from pteron._native import Program

__all__ = ["Call", "FlatCall"]


class _Process:
    """Threads and counters of this process."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Begins without any: the parent's threads are not in a forked child, and its locks may stay held."""
        self.lock = threading.Lock()
        self.threads: ThreadPoolExecutor | None = None
        self.counts: weakref.WeakKeyDictionary[Program, dict[str, CallCounts]] = weakref.WeakKeyDictionary()

    def executor(self) -> ThreadPoolExecutor:
        """The threads of all calls."""
        from concurrent.futures import ThreadPoolExecutor

        with self.lock:
            if self.threads is None:
                self.threads = ThreadPoolExecutor(processors(), thread_name_prefix="pteron")
            return self.threads

    def counts_of(self, program: Program, method: str) -> CallCounts:
        """The counters of a method."""
        with self.lock:
            of_program = self.counts.setdefault(program, {})
            if method not in of_program:
                of_program[method] = CallCounts(f"{label_of(program)}, {method}")
            return of_program[method]


_PROCESS = _Process()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_PROCESS.renew)


class Call:
    """A call that runs, or waits to, in a thread of the process; made by `Program.submit`."""

    def __init__(self, program: Program, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._program = program
        self._method = method
        self._arguments = args, kwargs
        self._token = CancelToken()
        self._future: Future[Any] = _PROCESS.executor().submit(self._run)

    def result(self, timeout: float | None = None) -> Any:
        """What the method gives, in the structure that was exported.

        Raises:
            TimeoutError: the call has not ended within `timeout` seconds; it goes on.
            Cancelled: `cancel` stopped it.
            PteronError: what `Program.run` raises.
        """
        return self._future.result(timeout)

    def done(self) -> bool:
        """Has the call ended?"""
        return self._future.done()

    def cancel(self) -> bool:
        """Stops the call and waits until it has let go of its inputs, at most the time of one chunk of a
        kernel.

        Gives True where the call was stopped, False where it had ended before.
        """
        self._token.cancel()
        return isinstance(self._future.exception(), Cancelled)

    async def wait(self) -> Any:
        """`result` for a coroutine. When its task is cancelled, the call is stopped, and has ended when
        CancelledError goes on.
        """
        import asyncio

        outcome = asyncio.wrap_future(self._future)
        try:
            return await asyncio.shield(outcome)
        except asyncio.CancelledError:
            outcome.add_done_callback(_looked_at)
            self._token.cancel()
            while not self._future.done():
                try:
                    await asyncio.wait([outcome])
                except asyncio.CancelledError:
                    continue  # cancelled once more: the inputs are still in use
            raise

    def _run(self) -> Any:
        counts = _PROCESS.counts_of(self._program, self._method)
        sums = {"batches": 1}
        try:
            return counts.counted(self._run_counted, lambda: sums)
        finally:
            self._arguments = (), {}

    def _run_counted(self) -> Any:
        if self._token.is_cancelled:
            raise Cancelled(
                "the call was cancelled before it ran", method=self._method, hint="submit it again"
            )
        return self._ask(*self._arguments)

    def _ask(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._program._run(
            self._method, args, kwargs, cancel=self._token, num_threads=threads_of_environment()
        )


class FlatCall(Call):
    """A call with its inputs in a list, as `program.inputs` has them; its result is the list of outputs."""

    def __init__(self, program: Program, method: str, inputs: list[Any]) -> None:
        super().__init__(program, method, (inputs,), {})

    def _ask(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        (inputs,) = args
        return self._program.execute(
            self._method, inputs, cancel=self._token, num_threads=threads_of_environment()
        )


def _looked_at(outcome: asyncio.Future[Any]) -> None:
    """asyncio complains of errors that nobody looks at; that of a call which was to stop needs nobody."""
    if not outcome.cancelled():
        outcome.exception()
