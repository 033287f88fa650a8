"""`app(folder)`: an ASGI application with OpenAI's endpoints for chat and completions.

`uvicorn` or any other ASGI server runs it: it has no authentication and opens no port itself.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

from pteron.asgi import Application, HttpError, Receive, Scope, Send, read_body, send_json, until_gone
from pteron.errors import InputError, PteronError
from pteron.llm.generator import Generator
from pteron.llm.server_requests import Answers, Request, RequestError, read_request
from pteron.llm.token_stream import TokenStream

_CHAT, _COMPLETIONS, _MODELS = "/v1/chat/completions", "/v1/completions", "/v1/models"


class App(Application):
    """The application; made by `app`."""

    def __init__(
        self,
        generator: Generator,
        *,
        name: str,
        max_new_tokens: int,
        max_body_bytes: int,
        concurrency: int,
        queue: int,
        deadline: float | None,
    ) -> None:
        self.generator, self._name = generator, name
        self._most_tokens, self._most_bytes = max_new_tokens, max_body_bytes
        self._concurrency, self._deadline = concurrency, deadline
        self._most_waiting = concurrency + queue
        self._present = 0
        self._slots: asyncio.Semaphore | None = None

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        if path == _MODELS and method == "GET":
            entry = {"id": self._name, "object": "model", "created": 0, "owned_by": "pteron"}
            await send_json(send, 200, {"object": "list", "data": [entry]})
            return
        if path not in (_CHAT, _COMPLETIONS):
            raise RequestError(404, f"there is no {path[:100]}")
        if method != "POST":
            raise RequestError(405, f"{path} takes POST")
        body = await self._body(receive)
        request = read_request(body, path == _CHAT, self._most_tokens)
        if self._present >= self._most_waiting:
            raise RequestError(429, "too many requests wait; try again later")
        if self._slots is None:
            self._slots = asyncio.Semaphore(self._concurrency)
        self._present += 1
        try:
            async with self._slots:
                await self._generate(request, receive, send)
        finally:
            self._present -= 1

    async def _body(self, receive: Receive) -> Any:
        try:
            content = await read_body(receive, self._most_bytes)
        except HttpError as error:
            raise RequestError(error.status, str(error)) from None
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            raise RequestError(400, "the body is no JSON") from None

    async def _generate(self, request: Request, receive: Receive, send: Send) -> None:
        settings = {**request.settings, "deadline": self._deadline}
        try:
            stream = await asyncio.to_thread(self.generator.stream, request.prompt, **settings)
        except InputError as error:
            raise RequestError(400, str(error), error.argument) from None
        except (PteronError, ImportError) as error:
            raise RequestError(500, str(error)) from None
        answers = Answers(request, self._name, self.generator.tokenizer)
        watcher = asyncio.ensure_future(_cancel_when_gone(receive, stream))
        try:
            if request.is_streamed:
                await _send_stream(send, stream, answers)
            else:
                await _send_whole(send, stream, answers)
        finally:
            watcher.cancel()
            await asyncio.to_thread(stream.close)


def app(
    folder: str | os.PathLike[str] | Generator,
    *,
    name: str | None = None,
    threads: int | None = None,
    max_new_tokens: int = 2048,
    max_body_bytes: int = 4 << 20,
    concurrency: int = 1,
    queue: int = 64,
    deadline: float | None = 300.0,
) -> App:
    """The application for a folder, or for a generator that is open already.

    `name`: of the model in answers (the folder's). `max_new_tokens`: of an answer at most. `max_body_bytes`:
    of a request. `concurrency`: answers that are generated at the same time; `queue` more requests wait,
    others get status 429. `deadline`: seconds of an answer, which then ends with the reason "length"; None:
    no end.

    Raises what `Generator` raises.
    """
    generator = folder if isinstance(folder, Generator) else Generator(folder, threads=threads)
    return App(
        generator,
        name=name or generator.folder.path.resolve().name,
        max_new_tokens=max_new_tokens,
        max_body_bytes=max_body_bytes,
        concurrency=concurrency,
        queue=queue,
        deadline=deadline,
    )


async def _cancel_when_gone(receive: Receive, stream: TokenStream) -> None:
    """A client that has gone needs no text."""
    await until_gone(receive)
    stream.cancel()


async def _send_whole(send: Send, stream: TokenStream, answers: Answers) -> None:
    try:
        async for _ in stream:
            pass
    except PteronError as error:
        raise RequestError(500, str(error)) from None
    await send_json(send, 200, answers.whole(stream.result))


async def _send_stream(send: Send, stream: TokenStream, answers: Answers) -> None:
    """Server-sent events; an error behind the first one is an event too."""
    headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for chunk in answers.first():
        await _event(send, chunk)
    try:
        async for piece in stream:
            await _event(send, answers.piece(piece, stream.logprobs))
        for chunk in answers.last(stream.result):
            await _event(send, chunk)
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": True})
    except PteronError as error:
        await _event(send, RequestError(500, str(error)).body())
    await send({"type": "http.response.body", "body": b""})


async def _event(send: Send, content: Any) -> None:
    line = b"data: " + json.dumps(content).encode() + b"\n\n"
    await send({"type": "http.response.body", "body": line, "more_body": True})
