"""Calls of stateless methods in threads of the process: `await program.run_async(...)` and
`program.submit(...)`.

A call runs in a session of its own, which can be stopped. As many calls run at once as the process has
processors, others wait; a method keeps at most two idle sessions, and the memory of the others goes back when
their calls end.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any

from pteron.errors import Cancelled, DeadlineExceeded, InputError
from pteron.metrics import CallCounts
from pteron.recipe import label_of
from pteron.thread_cap import processors, threads_of_environment

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future, ThreadPoolExecutor

    from pteron._native import Method, Program

__all__ = ["IDLE", "Call"]

#: Sessions of a method that are kept between calls.
IDLE = 2
# Errors after which a session is used again.
_HARMLESS = (Cancelled, DeadlineExceeded, InputError)
# Seconds between two tries to stop a call, of which the first may come before it runs.
_RETRY = 0.002


class _Sessions:
    """The sessions of a stateless method that nobody uses now, and its counters."""

    def __init__(self, program: Program, method: str) -> None:
        _refuse_state(program, method)
        self._method = method
        self._lock = threading.Lock()
        self._idle: list[Method] = []
        self.counts = CallCounts(f"{label_of(program)}, {method}")

    def take(self, program: Program) -> Method:
        """An idle session, or a new one."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return program.load_method(self._method, num_threads=threads_of_environment())

    def give_back(self, session: Method) -> None:
        """Keeps a session for the next call, or drops it."""
        with self._lock:
            if len(self._idle) < IDLE:
                self._idle.append(session)


def _refuse_state(program: Program, method: str) -> None:
    """Raises InputError, as `Program.run` does, for a method whose calls depend on each other."""
    import numpy as np

    inputs: list[Any] = []
    for spec in program.inputs(method):
        if spec.kind == "tensor":
            shape = [dim if isinstance(dim, int) else dim.min for dim in spec.shape or ()]
            inputs.append(np.zeros(shape, np.dtype(str(spec.dtype))))
        else:
            inputs.append(spec.range[0] if spec.range is not None else spec.value)
    try:
        program.execute(
            method, inputs, deadline=0.0
        )  # refused before it runs, or stopped before its first step
    except DeadlineExceeded:
        return


class _Process:
    """Threads and sessions of this process."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Begins without any: the parent's threads are not in a forked child, and its locks may stay held."""
        self.lock = threading.Lock()
        self.threads: ThreadPoolExecutor | None = None
        self.sessions: weakref.WeakKeyDictionary[Program, dict[str, _Sessions]] = weakref.WeakKeyDictionary()

    def executor(self) -> ThreadPoolExecutor:
        """The threads of all calls."""
        from concurrent.futures import ThreadPoolExecutor

        with self.lock:
            if self.threads is None:
                self.threads = ThreadPoolExecutor(processors(), thread_name_prefix="pteron")
            return self.threads

    def sessions_of(self, program: Program, method: str) -> _Sessions:
        """The sessions of a method. Two threads that ask for the first time may both make them; one is
        kept.
        """
        with self.lock:
            found = self.sessions.setdefault(program, {}).get(method)
        if found is None:
            made = _Sessions(program, method)
            with self.lock:
                found = self.sessions[program].setdefault(method, made)
        return found


_PROCESS = _Process()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_PROCESS.renew)


class Call:
    """A call that runs, or waits to, in a thread of the process; made by `Program.submit`."""

    def __init__(self, program: Program, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._program = program
        self._method = method
        self._arguments = args, kwargs
        self._lock = threading.Lock()
        self._session: Method | None = None
        self._is_cancelled = False
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
        from concurrent.futures import wait

        while not self._future.done():
            self._stop()
            wait([self._future], _RETRY)
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
            while not self._future.done():
                self._stop()
                try:
                    await asyncio.sleep(_RETRY)
                except asyncio.CancelledError:
                    continue  # cancelled once more: the inputs are still in use
            raise

    def _stop(self) -> None:
        with self._lock:
            self._is_cancelled = True
            if self._session is not None:
                self._session.cancel()

    def _run(self) -> Any:
        sessions = _PROCESS.sessions_of(self._program, self._method)
        sums = {"batches": 1}
        return sessions.counts.counted(lambda: self._run_in(sessions), lambda: sums)

    def _run_in(self, sessions: _Sessions) -> Any:
        args, kwargs = self._arguments
        session = sessions.take(self._program)
        try:
            with self._lock:
                if self._is_cancelled:
                    raise Cancelled(
                        "the call was cancelled before it ran",
                        method=self._method,
                        hint="submit it again",
                    )
                self._session = session
            result = session(*args, **kwargs)
        except _HARMLESS:
            self._let_go()
            sessions.give_back(session)
            raise
        else:
            self._let_go()
            sessions.give_back(session)
            return result
        finally:
            self._let_go()  # after any other error the session is dropped: a delegate of it may be damaged

    def _let_go(self) -> None:
        """From here on `cancel` does not reach the session, which another call may have by then."""
        with self._lock:
            self._session = None
        self._arguments = (), {}


def _looked_at(outcome: asyncio.Future[Any]) -> None:
    """asyncio complains of errors that nobody looks at; that of a call which was to stop needs nobody."""
    if not outcome.cancelled():
        outcome.exception()
