"""Dynamic batching: requests of one model that run together, each of which may end before the others."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pteron.batching import Batching, batching_of
from pteron.errors import Cancelled, DeadlineExceeded, PteronError
from pteron.integrations.oip.model import Model

__all__ = ["Joiner", "batching_of_model"]


def batching_of_model(model: Model) -> Batching | None:
    """The batch dimension along which requests can be joined; None where there is none that varies."""
    found = batching_of(
        tuple(model.inputs.values()), [spec for _, spec in model.outputs.values()], None, None, ()
    )
    return None if found is None or found.least == found.most else found


@dataclass(eq=False)
class _Request:
    """One that waits or runs."""

    inputs: Mapping[str, Any]
    rows: int
    key: tuple[Any, ...]
    since: float
    outcome: asyncio.Future[list[Any]]
    batch: _Batch | None = None


class _Batch:
    """Requests that run together; stopped when the last of them has gone."""

    def __init__(self, requests: list[_Request]) -> None:
        self.requests = requests
        self.task: asyncio.Task[None] | None = None
        for request in requests:
            request.batch = self

    def left(self) -> None:
        """A request has gone."""
        if self.task is not None and all(request.outcome.done() for request in self.requests):
            self.task.cancel()


class Joiner:
    """Runs requests of a model, those of equal shapes together up to `most_rows`.

    Requests that come while others run wait, and go together when a slot is free. `seconds` is how long the
    first of them waits for more although a slot is free.
    """

    def __init__(
        self, model: Model, batching: Batching, most_rows: int, seconds: float, slots: asyncio.Semaphore
    ) -> None:
        self._model, self._names, self._seconds, self._slots = model, batching.inputs, seconds, slots
        self._most = min(most_rows, batching.most)
        self._waiting: list[_Request] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._sender: asyncio.Task[None] | None = None
        self._has_come = asyncio.Event()

    async def run(self, inputs: Mapping[str, Any]) -> list[Any]:
        """The outputs of a request; what a call of the model raises. Cancelling it takes the request back."""
        loop = asyncio.get_running_loop()
        rows = len(inputs[self._names[0]])
        request = _Request(inputs, rows, self._key(inputs), loop.time(), loop.create_future())
        self._waiting.append(request)
        self._has_come.set()
        if self._sender is None or self._sender.done():
            self._sender = loop.create_task(self._send())
        try:
            return await request.outcome
        except asyncio.CancelledError:
            if request.batch is None:
                self._waiting.remove(request)
            else:
                request.batch.left()
            raise

    def _key(self, inputs: Mapping[str, Any]) -> tuple[Any, ...]:
        """What requests have in common that can run together: all but the rows."""
        return tuple(
            np.shape(value)[1:] if name in self._names else (np.shape(value), np.asarray(value).tobytes())
            for name, value in sorted(inputs.items())
        )

    async def _send(self) -> None:
        while self._waiting:
            await self._wait_for_more()
            await self._slots.acquire()
            requests = self._taken()
            if not requests:
                self._slots.release()
                continue
            batch = _Batch(requests)
            batch.task = asyncio.get_running_loop().create_task(self._run(batch))
            self._tasks.add(batch.task)
            batch.task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._slots.release()

    async def _wait_for_more(self) -> None:
        """Until there are as many rows as run together, or the first request has waited long enough."""
        loop = asyncio.get_running_loop()
        while self._waiting:
            first = self._waiting[0]
            left = first.since + self._seconds - loop.time()
            if left <= 0 or sum(one.rows for one in self._waiting if one.key == first.key) >= self._most:
                return
            self._has_come.clear()
            try:
                async with asyncio.timeout(left):
                    await self._has_come.wait()
            except TimeoutError:
                return

    def _taken(self) -> list[_Request]:
        """The first request, and those behind it that fit to it."""
        taken: list[_Request] = []
        rows = 0
        for request in list(self._waiting):
            fits = not taken or (request.key == taken[0].key and rows + request.rows <= self._most)
            if fits:
                taken.append(request)
                rows += request.rows
                self._waiting.remove(request)
        return taken

    async def _run(self, batch: _Batch) -> None:
        requests = batch.requests
        if len(requests) > 1:
            joined = dict(requests[0].inputs)
            for name in self._names:
                joined[name] = np.concatenate([request.inputs[name] for request in requests])
            try:
                results = await self._model.call(joined).wait()
            except (Cancelled, DeadlineExceeded) as error:
                self._end(requests, error)
                return
            except PteronError:
                pass  # one of them may be to blame: each runs alone, and gets its own error
            else:
                start = 0
                for request in requests:
                    stop = start + request.rows
                    if not request.outcome.done():
                        request.outcome.set_result([result[start:stop] for result in results])
                    start = stop
                return
        for request in requests:
            if not request.outcome.done():
                try:
                    result = await self._model.call(request.inputs).wait()
                except PteronError as error:
                    self._end([request], error)
                else:
                    if not request.outcome.done():
                        request.outcome.set_result(result)

    @staticmethod
    def _end(requests: list[_Request], error: Exception) -> None:
        for request in requests:
            if not request.outcome.done():
                request.outcome.set_exception(error)
