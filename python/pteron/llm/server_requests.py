"""Requests and answers in OpenAI's form, without the web: JSON to settings, results to JSON."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pteron.asgi import HttpError
from pteron.llm.generation_result import GenerationResult, TokenLogprob
from pteron.llm.tokenizer import Tokenizer

#: Fields that become settings as they are, with the types of their values.
_SETTINGS: Mapping[str, tuple[type, ...]] = {
    "temperature": (int, float),
    "top_p": (int, float),
    "top_k": (int,),
    "min_p": (int, float),
    "presence_penalty": (int, float),
    "frequency_penalty": (int, float),
    "repetition_penalty": (int, float),
    "seed": (int,),
}
#: Fields that change nothing here.
_IGNORED = {"model", "user", "stream", "stream_options", "metadata", "store", "safety_identifier"}
_KNOWN = {
    *_SETTINGS,
    *_IGNORED,
    *("messages", "prompt", "max_tokens", "max_completion_tokens", "stop", "logit_bias", "logprobs"),
    *("response_format", "top_logprobs", "n", "echo", "best_of", "suffix"),
}
# Others than these values of a field ask for what is not here.
_ONLY: Mapping[str, tuple[Any, ...]] = {
    "n": (None, 1),
    "best_of": (None, 1),
    "echo": (None, False),
    "suffix": (None, ""),
}
_REASONS = {"stop": "stop", "length": "length", "deadline": "length", "cancelled": "stop"}


class RequestError(HttpError):
    """A request that cannot be answered, with its HTTP status and the field at fault."""

    def __init__(self, status: int, message: str, field: str | None = None) -> None:
        super().__init__(status, message)
        self.field = field

    def body(self) -> dict[str, Any]:
        """The answer in OpenAI's form."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": str(self), "type": kind, "param": self.field, "code": None}}


@dataclass(frozen=True)
class Request:
    """A checked request: what to generate, and how to answer."""

    is_chat: bool
    prompt: Any
    settings: Mapping[str, Any]
    is_streamed: bool
    with_usage: bool
    id: str
    created: int


def read_request(body: Any, is_chat: bool, most_tokens: int) -> Request:
    """Checks the body of a request. RequestError where it asks for something else than text."""
    if not isinstance(body, dict):
        raise RequestError(400, "the body is no JSON object")
    for name, value in body.items():
        if value is not None and (name not in _KNOWN or value not in _ONLY.get(name, (value,))):
            raise RequestError(400, f"{name} is not supported with this value", name)
    options = body.get("stream_options") or {}
    kind = "chatcmpl" if is_chat else "cmpl"
    return Request(
        is_chat=is_chat,
        prompt=_messages(body.get("messages")) if is_chat else _prompt(body.get("prompt")),
        settings=_settings(body, is_chat, most_tokens),
        is_streamed=bool(body.get("stream")),
        with_usage=isinstance(options, dict) and bool(options.get("include_usage")),
        id=f"{kind}-{secrets.token_hex(12)}",
        created=int(time.time()),
    )


def _settings(body: Mapping[str, Any], is_chat: bool, most_tokens: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, kinds in _SETTINGS.items():
        value = body.get(name)
        if value is not None:
            found[name] = _checked(value, kinds, name)
    asked = body.get("max_completion_tokens") or body.get("max_tokens") or most_tokens
    found["max_new_tokens"] = min(_checked(asked, (int,), "max_tokens"), most_tokens)
    stop = body.get("stop")
    stops = [stop] if isinstance(stop, str) else stop or []
    if not isinstance(stops, list) or len(stops) > 16 or not all(isinstance(text, str) for text in stops):
        raise RequestError(400, "stop takes up to 16 texts", "stop")
    found["stop_strings"] = stops
    bias = body.get("logit_bias")
    if bias:
        try:
            found["logit_bias"] = {int(token): float(value) for token, value in bias.items()}
        except (AttributeError, TypeError, ValueError):
            raise RequestError(400, "logit_bias maps tokens to numbers", "logit_bias") from None
    form = body.get("response_format")
    if form is not None:
        found["json_schema"] = _schema(form)
    if is_chat and body.get("logprobs"):
        found["logprobs"] = _checked(body.get("top_logprobs") or 0, (int,), "top_logprobs")
    elif not is_chat and body.get("logprobs") is not None:
        found["logprobs"] = _checked(body["logprobs"], (int,), "logprobs")
    if not 0 <= found.get("logprobs", 0) <= 20:
        raise RequestError(400, "log-probabilities come for 0 to 20 tokens", "top_logprobs")
    return found


def _checked(value: Any, kinds: tuple[type, ...], name: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise RequestError(400, f"{name} is no number", name)
    return value


def _schema(form: Any) -> Any:
    """The schema of a response_format; any object where it is "json_object"."""
    match form:
        case {"type": "json_object"}:
            return {"type": "object"}
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return schema
        case {"type": "text"}:
            return None
    raise RequestError(400, "response_format takes text, json_object or json_schema", "response_format")


def _messages(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not value:
        raise RequestError(400, "messages takes a list of at least one message", "messages")
    return [_message(message) for message in value]


def _message(message: Any) -> dict[str, Any]:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise RequestError(400, "a message has a role and a content", "messages")
    content = message.get("content")
    if isinstance(content, list):
        parts = [_part(part) for part in content]
        texts = [part["text"] for part in parts if part["type"] == "text"]
        content = "".join(texts) if len(texts) == len(parts) else parts
    elif not isinstance(content, str):
        raise _no_content()
    return {**message, "content": content}


def _part(part: Any) -> dict[str, Any]:
    """A text, or an image that the request itself holds: a server opens neither files nor addresses."""
    match part:
        case {"text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "image_url", "image_url": {"url": str(url)}} if url.startswith("data:"):
            return {"type": "image_url", "image_url": {"url": url}}
        case {"type": "image_url", "image_url": {"url": str()}}:
            raise RequestError(
                400, "the URL of an image begins with data: (others are not opened)", "messages"
            )
    raise _no_content()


def _no_content() -> RequestError:
    what = "the content of a message is a text, or parts that are texts and images"
    return RequestError(400, what, "messages")


def _prompt(value: Any) -> str | list[int]:
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], (str, list)):
        value = value[0]
    is_tokens = isinstance(value, list) and all(type(token) is int for token in value)
    if not value or not (isinstance(value, str) or is_tokens):
        raise RequestError(400, "prompt takes one text, or the tokens of one", "prompt")
    found: str | list[int] = value
    return found


class Answers:
    """Writes the answers to a request."""

    def __init__(self, request: Request, model: str, tokenizer: Tokenizer) -> None:
        self._request, self._model, self._tokenizer = request, model, tokenizer
        self._sent = 0

    def whole(self, result: GenerationResult) -> dict[str, Any]:
        """The answer in one piece."""
        choice = {"index": 0, "finish_reason": _REASONS[result.finish_reason]}
        choice["logprobs"] = self._logprobs(result.logprobs)
        if self._request.is_chat:
            choice["message"] = {"role": "assistant", "content": result.text, "refusal": None}
        else:
            choice["text"] = result.text
        return {**self._head(False), "choices": [choice], "usage": self._usage(result)}

    def first(self) -> list[dict[str, Any]]:
        """What comes before the first piece."""
        return [self._chunk({"role": "assistant", "content": ""}, "")] if self._request.is_chat else []

    def piece(self, text: str, logprobs: Sequence[TokenLogprob]) -> dict[str, Any]:
        """A piece of the text, with the log-probabilities of tokens that have come since the last one."""
        new, self._sent = logprobs[self._sent :], len(logprobs)
        return self._chunk({"content": text}, text, self._logprobs(new) if new else None)

    def last(self, result: GenerationResult) -> list[dict[str, Any]]:
        """What comes behind the last piece."""
        rest = (result.logprobs or ())[self._sent :]
        reason = _REASONS[result.finish_reason]
        found = [self._chunk({}, "", self._logprobs(rest) if rest else None, reason)]
        if self._request.with_usage:
            found.append({**self._head(True), "choices": [], "usage": self._usage(result)})
        return found

    def _chunk(
        self, delta: Mapping[str, Any], text: str, logprobs: Any = None, reason: str | None = None
    ) -> dict[str, Any]:
        choice = {"index": 0, "finish_reason": reason, "logprobs": logprobs}
        choice |= {"delta": dict(delta)} if self._request.is_chat else {"text": text}
        return {**self._head(True), "choices": [choice]}

    def _head(self, is_chunk: bool) -> dict[str, Any]:
        kind = "text_completion"
        if self._request.is_chat:
            kind = "chat.completion.chunk" if is_chunk else "chat.completion"
        request = self._request
        return {"id": request.id, "object": kind, "created": request.created, "model": self._model}

    def _usage(self, result: GenerationResult) -> dict[str, Any]:
        prompt, new = result.prompt_tokens, len(result.tokens)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": new,
            "total_tokens": prompt + new,
            "prompt_tokens_details": {"cached_tokens": result.reused_tokens},
        }

    def _logprobs(self, found: Sequence[TokenLogprob] | None) -> Any:
        if found is None:
            return None
        if self._request.is_chat:
            return {"content": [self._of_chat(one) for one in found], "refusal": None}
        return {
            "tokens": [self._text(one.token) for one in found],
            "token_logprobs": [one.logprob for one in found],
            "top_logprobs": [{self._text(token): value for token, value in one.top} for one in found],
            "text_offset": [],
        }

    def _of_chat(self, one: TokenLogprob) -> dict[str, Any]:
        top = [self._entry(token, value) for token, value in one.top]
        return {**self._entry(one.token, one.logprob), "top_logprobs": top}

    def _entry(self, token: int, logprob: float) -> dict[str, Any]:
        text = self._text(token)
        return {"token": text, "logprob": logprob, "bytes": list(text.encode())}

    def _text(self, token: int) -> str:
        return self._tokenizer.decode([token], skip_special_tokens=False)
