"""What ASGI applications of pteron share: reading a body within limits, answers in JSON, start and end."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class HttpError(Exception):
    """A request that cannot be answered, with its HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status

    def body(self) -> dict[str, Any]:
        """The answer, for JSON."""
        return {"error": str(self)}


class Application:
    """An ASGI application of HTTP alone, whose answers may end as HttpError."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
        elif scope["type"] == "http":
            try:
                await self._answer(scope, receive, send)
            except HttpError as error:
                await send_json(send, error.status, error.body())
        else:
            raise RuntimeError(f"{type(self).__module__} takes HTTP alone, not {scope['type']}")

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise NotImplementedError


async def read_body(receive: Receive, most_bytes: int) -> bytes:
    """The body of a request.

    Raises:
        HttpError: it is longer than `most_bytes` (413), or the client went before its end (400).
    """
    parts, length, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HttpError(400, "the client has gone")
        part = message.get("body", b"")
        length += len(part)
        if length > most_bytes:
            raise HttpError(413, f"the body is longer than {most_bytes} bytes")
        parts.append(part)
        more = message.get("more_body", False)
    return b"".join(parts)


async def until_gone(receive: Receive) -> None:
    """Returns when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def send_json(send: Send, status: int, content: Any) -> None:
    """An answer in JSON."""
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(content).encode()})


async def lifespan(receive: Receive, send: Send) -> None:
    """Start and end of the server, which change nothing here."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
