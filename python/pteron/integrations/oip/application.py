"""The application: paths of the protocol, limits, and calls that end with their clients."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from pteron import _native
from pteron.asgi import Application, HttpError, Receive, Scope, Send, read_body, send_json, until_gone
from pteron.errors import Cancelled, DeadlineExceeded, InputError, LimitExceeded, PteronError
from pteron.integrations.oip.joining import Joiner, batching_of_model
from pteron.integrations.oip.model import Model
from pteron.integrations.oip.requests import Inference, read_inference, write_answer
from pteron.integrations.oip.tensors import numpy_dtype
from pteron.metrics import logger

if TYPE_CHECKING:
    from pteron._native import Program, _File

_LENGTH = b"inference-header-content-length"
_MODEL = re.compile(r"/v2/models/([^/]+)(?:/versions/([^/]+))?(/ready|/infer)?")


class App(Application):
    """The application; made by `app`."""

    def __init__(
        self,
        models: Mapping[str, Model],
        *,
        max_body_bytes: int,
        body_seconds: float | None,
        deadline: float | None,
        concurrency: int,
        queue: int,
        batch_rows: int | None,
        batch_seconds: float,
    ) -> None:
        self._batch_rows, self._batch_seconds = batch_rows, batch_seconds
        self._joiners: dict[str, Joiner] = {}
        self._models, self._most_bytes, self._body_seconds = dict(models), max_body_bytes, body_seconds
        self._deadline, self._concurrency, self._most_present = deadline, concurrency, concurrency + queue
        self._present = 0
        self._slots: asyncio.Semaphore | None = None

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path in ("/v2", "/v2/"):
            _only(scope, "GET")
            extensions = ["binary_tensor_data", "model_repository"]
            about = {"name": "pteron", "version": _native.__version__, "extensions": extensions}
            await send_json(send, 200, about)
        elif path in ("/v2/health/live", "/v2/health/ready"):
            _only(scope, "GET")
            await _send(send, b"", None)
        elif path == "/v2/repository/index":
            _only(scope, "POST")
            listed = [{"name": model.name, "version": model.version} for model in self._models.values()]
            await send_json(send, 200, [{**entry, "state": "READY", "reason": ""} for entry in listed])
        else:
            found = _MODEL.fullmatch(path)
            if found is None:
                raise HttpError(404, f"there is no {path[:100]}")
            await self._of_model(self._named(found[1], found[2]), found[3], scope, receive, send)

    def _named(self, name: str, version: str | None) -> Model:
        model = self._models.get(name)
        if model is None:
            raise HttpError(404, f"there is no model {name[:100]!r}; there are {', '.join(self._models)}")
        if version not in (None, model.version):
            raise HttpError(
                404, f"the model {name!r} has no version {version[:100]!r}; it has {model.version}"
            )
        return model

    async def _of_model(
        self, model: Model, action: str | None, scope: Scope, receive: Receive, send: Send
    ) -> None:
        if action == "/infer":
            _only(scope, "POST")
            await self._infer(model, scope, receive, send)
        elif action == "/ready":
            _only(scope, "GET")
            await _send(send, b"", None)
        else:
            _only(scope, "GET")
            await send_json(send, 200, model.metadata())

    async def _infer(self, model: Model, scope: Scope, receive: Receive, send: Send) -> None:
        length = _json_length(scope.get("headers", ()))
        if self._present >= self._most_present:
            raise HttpError(503, "too many requests wait; try again later")
        self._present += 1
        try:
            try:
                async with asyncio.timeout(self._body_seconds):
                    body = await read_body(receive, self._most_bytes)
            except TimeoutError:
                raise HttpError(408, f"the body has not come within {self._body_seconds} s") from None
            asked = read_inference(body, length, model)
            results = await _while_there(self._results(model, asked), receive)
        finally:
            self._present -= 1
        if results is None:
            return  # nobody is there to be answered
        await _send(send, *write_answer(asked, results, model))

    async def _results(self, model: Model, asked: Inference) -> list[Any]:
        """The outputs; the deadline counts the time in the queue too."""
        limits = [seconds for seconds in (asked.seconds, self._deadline) if seconds is not None]
        seconds = min(limits, default=None)
        if self._slots is None:
            self._begin()
        assert self._slots is not None
        joiner = self._joiners.get(model.name)
        try:
            async with asyncio.timeout(seconds):
                if joiner is not None:
                    return await joiner.run(asked.inputs)
                async with self._slots:
                    found: list[Any] = await model.call(asked.inputs).wait()
                    return found
        except (TimeoutError, DeadlineExceeded, Cancelled):
            raise HttpError(504, f"the call was stopped: its deadline of {seconds} s has passed") from None
        except (InputError, LimitExceeded) as error:
            raise HttpError(400, str(error)) from None
        except PteronError as error:
            logger().error("model %s: %s", model.name, error)
            raise HttpError(500, str(error)) from None

    def _begin(self) -> None:
        """What belongs to the event loop of the first request."""
        self._slots = asyncio.Semaphore(self._concurrency)
        for name, model in self._models.items() if self._batch_rows is not None else ():
            batching = batching_of_model(model)
            if batching is not None:
                self._joiners[name] = Joiner(
                    model, batching, self._batch_rows or 1, self._batch_seconds, self._slots
                )


def app(
    models: Mapping[str, _File | Program],
    *,
    method: str = "forward",
    max_body_bytes: int = 64 << 20,
    body_seconds: float | None = 60.0,
    deadline: float | None = 60.0,
    concurrency: int = 2,
    queue: int = 64,
    batch_rows: int | None = None,
    batch_seconds: float = 0.0,
) -> App:
    """The application for programs by the names of their models: paths, bytes, or what `pteron.load` gave.

    `method`: of each program. `max_body_bytes`: of a request, longer ones get status 413. `body_seconds`: in
    which a body has to come (408). `deadline`: seconds of a call, the wait for others included, after which
    it is stopped (504); a request may ask for less with the parameter `timeout`, microseconds. None: no end.
    `concurrency`: calls that run at once; `queue` more requests may be there, others get 503.
    `batch_rows`: requests to a model whose first dimension varies run together, up to so many rows, where
    their other dimensions are equal; None: each alone. Rows must not depend on each other. Those that wait
    for a call to end go together; `batch_seconds` is how long a request waits for others although it could
    run.

    Raises:
        InputError: no model, a name with a slash, a limit that allows nothing, a method that keeps state, or
            one that takes or gives what the protocol has no form for.
        ImportError: a model takes bfloat16, and the package ml_dtypes is not there.
        PteronError, OSError: what `pteron.load` raises.
    """
    for argument, value, least in (
        ("models", len(models), 1),
        ("concurrency", concurrency, 1),
        ("queue", queue, 0),
        ("max_body_bytes", max_body_bytes, 1),
        ("batch_rows", 1 if batch_rows is None else batch_rows, 1),
    ):
        if value < least:
            raise InputError(
                "the limit allows no request",
                argument=argument,
                expected=f"at least {least}",
                got=str(value),
                hint="leave the argument out for its default",
            )
    for argument, seconds in (("body_seconds", body_seconds), ("deadline", deadline)):
        if seconds is not None and not 0 < seconds < math.inf:
            raise InputError(
                "the limit is no time that a request could take",
                argument=argument,
                expected="more than 0 seconds, or None for no end",
                got=str(seconds),
                hint="leave the argument out for its default",
            )
    if not 0 <= batch_seconds < math.inf:
        raise InputError(
            "the limit is no time that a request could wait",
            argument="batch_seconds",
            expected="0 seconds or more",
            got=str(batch_seconds),
            hint="leave the argument out: requests that wait for a call go together",
        )
    found = {}
    for name, source in models.items():
        if not name or "/" in name:
            raise InputError(
                "the name of a model is a part of a path",
                argument="models",
                expected="a name without a slash",
                got=repr(name),
                hint="name the model by one word, such as 'encoder'",
            )
        program = source if isinstance(source, _native.Program) else _native.load(source)
        found[name] = Model(name, program, method)
    if batch_rows is not None:
        _check_joining(found)
    return App(
        found,
        max_body_bytes=max_body_bytes,
        body_seconds=body_seconds,
        deadline=deadline,
        concurrency=concurrency,
        queue=queue,
        batch_rows=batch_rows,
        batch_seconds=batch_seconds,
    )


def _check_joining(models: Mapping[str, Model]) -> None:
    joined = [model for model in models.values() if batching_of_model(model) is not None]
    if not joined:
        raise InputError(
            "no model has a first dimension that varies and that all its outputs have",
            argument="batch_rows",
            expected="a model with a batch dimension",
            got=", ".join(models),
            hint="export the model with a range of rows, or leave batch_rows out",
        )
    for model in joined:
        for _, spec in model.outputs.values():
            numpy_dtype(str(spec.dtype))  # outputs are cut in NumPy


async def _while_there(work: Coroutine[Any, Any, list[Any]], receive: Receive) -> list[Any] | None:
    """What `work` gives; None where the client goes first, which stops it."""
    task, watcher = asyncio.ensure_future(work), asyncio.ensure_future(until_gone(receive))
    try:
        await asyncio.wait([task, watcher], return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        watcher.cancel()
        task.cancel()
        await asyncio.gather(task, watcher, return_exceptions=True)


def _only(scope: Scope, method: str) -> None:
    if scope["method"] != method:
        raise HttpError(405, f"{scope['path'][:100]} takes {method}")


def _json_length(headers: Any) -> int | None:
    found = None
    for name, value in headers:
        if name.lower() == b"content-encoding" and value.lower() != b"identity":
            raise HttpError(415, "content-encoding: compressed bodies are not supported")
        if name.lower() == _LENGTH:
            if found is not None or not re.fullmatch(rb"[0-9]{1,18}", value):
                raise HttpError(400, "Inference-Header-Content-Length: expected one number of bytes")
            found = int(value)
    return found


async def _send(send: Send, text: bytes, binary: bytes | None) -> None:
    kind = b"application/json" if binary is None else b"application/octet-stream"
    whole = text if binary is None else text + binary
    headers = [(b"content-type", kind), (b"content-length", str(len(whole)).encode())]
    if binary is not None:
        headers.append((_LENGTH, str(len(text)).encode()))
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": whole})
