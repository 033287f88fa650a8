"""The endpoints with OpenAI's own client, over loopback."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pteron.llm import Generator
from pteron.llm.server import App, app
from tests.llm.recipe_folder import RecipeFolder
from tests.support.waiting import until

MESSAGES: list[Any] = [{"role": "user", "content": "Why?"}]
PROMPT = "Every step"


@pytest.fixture(scope="module")
def served(recipe: RecipeFolder) -> Iterator[tuple[App, str]]:
    """The application behind uvicorn, and its address."""
    import uvicorn

    application = app(recipe.folder, name="small", threads=1, max_new_tokens=60, max_body_bytes=100_000)
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        settings = uvicorn.Config(application, log_level="error", ws="none")
        server = uvicorn.Server(settings)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [port]})
        thread.start()
        until(lambda: server.started, "the server has started")
        yield application, f"http://127.0.0.1:{port.getsockname()[1]}/v1"
        server.should_exit = True
        thread.join()


@pytest.fixture
def client(served: tuple[App, str]) -> Iterator[Any]:
    """OpenAI's client."""
    import openai

    with openai.OpenAI(base_url=served[1], api_key="none", max_retries=0) as found:
        yield found


def test_chat(generator: Generator, client: Any) -> None:
    expected = generator.generate(MESSAGES, max_new_tokens=8)
    found = client.chat.completions.create(model="small", messages=MESSAGES, max_completion_tokens=8)
    assert found.choices[0].message.content == expected.text
    assert found.choices[0].finish_reason == "length"
    assert found.usage.prompt_tokens == expected.prompt_tokens
    assert found.usage.completion_tokens == 8
    parts = [{"role": "user", "content": [{"type": "text", "text": "Why?"}]}]
    again = client.chat.completions.create(model="small", messages=parts, max_tokens=8)
    assert again.choices[0].message.content == expected.text
    assert [model.id for model in client.models.list()] == ["small"]


def test_streamed_chat(generator: Generator, client: Any) -> None:
    settings = {"temperature": 0.9, "top_p": 0.95, "seed": 7, "stop": ["never there"]}
    expected = generator.generate(
        MESSAGES, max_new_tokens=12, temperature=0.9, top_p=0.95, seed=7, logprobs=2
    )
    chunks = list(
        client.chat.completions.create(
            model="small",
            messages=MESSAGES,
            max_tokens=12,
            stream=True,
            stream_options={"include_usage": True},
            logprobs=True,
            top_logprobs=2,
            **settings,
        )
    )
    assert chunks[-1].usage.completion_tokens == len(expected.tokens)
    choices = [chunk.choices[0] for chunk in chunks[:-1]]
    assert choices[0].delta.role == "assistant"
    assert "".join(choice.delta.content or "" for choice in choices) == expected.text
    assert [choice.finish_reason for choice in choices].count(None) == len(choices) - 1
    logprobs = [one for choice in choices if choice.logprobs for one in choice.logprobs.content]
    assert expected.logprobs is not None
    # A cache that has the beginning of the prompt computes the rest in other chunks, and rounds otherwise.
    values = [one.logprob for one in expected.logprobs]
    assert [one.logprob for one in logprobs] == pytest.approx(values, abs=1e-4)
    assert all(len(one.top_logprobs) == 2 for one in logprobs)


def test_answers_by_a_schema(client: Any) -> None:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {**schema, **CLOSED}}}
    found = client.chat.completions.create(
        model="small", messages=MESSAGES, max_tokens=40, response_format=form
    )
    assert json.loads(found.choices[0].message.content)["ok"] in (True, False)
    assert found.choices[0].finish_reason == "stop"


CLOSED = {"additionalProperties": False}


def test_completions(generator: Generator, client: Any) -> None:
    expected = generator.generate(PROMPT, max_new_tokens=8, logprobs=1)
    tokens = generator.tokenizer.encode(PROMPT)
    for prompt in (PROMPT, [PROMPT], tokens):
        found = client.completions.create(model="small", prompt=prompt, max_tokens=8, logprobs=1)
        assert found.choices[0].text == expected.text
        assert len(found.choices[0].logprobs.tokens) == len(expected.tokens)
    pieces = client.completions.create(model="small", prompt=PROMPT, max_tokens=8, stream=True)
    assert "".join(chunk.choices[0].text for chunk in pieces) == expected.text
    stop = expected.text[3:5]
    short = client.completions.create(model="small", prompt=PROMPT, max_tokens=8, stop=stop)
    assert short.choices[0].text == expected.text[: expected.text.index(stop)]
    assert short.choices[0].finish_reason == "stop"


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"messages": []}, "at least one message"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "texts and images"),
        ({"n": 2}, "n is not supported"),
        ({"tools": [{"type": "function"}]}, "tools is not supported"),
        ({"response_format": {"type": "xml"}}, "response_format takes"),
        ({"temperature": -1}, "temperature"),
        ({"max_tokens": "many"}, "max_tokens is no number"),
        ({"messages": [{"role": "user", "content": "long " * 300}]}, "does not fit into the cache"),
        ({"messages": [{"role": "user", "content": "long " * 30_000}]}, "longer than 100000 bytes"),
        ({"stop": [1]}, "stop takes"),
        ({"logit_bias": {"a": 1}}, "logit_bias maps"),
        ({"top_logprobs": 100, "logprobs": True}, "0 to 20"),
    ],
)
def test_mistakes_are_answers(client: Any, settings: dict[str, Any], text: str) -> None:
    import openai

    given = {"messages": MESSAGES, **settings}
    with pytest.raises(openai.APIStatusError, match=text) as caught:
        client.post("/chat/completions", cast_to=object, body={"model": "small", **given})
    assert caught.value.status_code in (400, 413)
    assert client.chat.completions.create(model="small", messages=MESSAGES, max_tokens=2).choices


def test_paths_and_methods(client: Any) -> None:
    import openai

    with pytest.raises(openai.NotFoundError, match="there is no /v1/embeddings"):
        client.embeddings.create(model="small", input="x")
    with pytest.raises(openai.APIStatusError) as caught:
        client.get("/completions", cast_to=object)
    assert caught.value.status_code == 405


async def called(
    application: App, body: Any, path: str = "/v1/completions", gone_after: int | None = None
) -> list[dict[str, Any]]:
    """What the application sends for a request; the client goes after so many messages."""
    sent: list[dict[str, Any]] = []
    requests = [{"type": "http.request", "body": json.dumps(body).encode()}]
    gone = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if requests:
            return requests.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)
        if gone_after is not None and len(sent) >= gone_after:
            gone.set()

    scope = {"type": "http", "path": path, "method": "POST"}
    await application(scope, receive, send)
    return sent


def _body(message: Any) -> Any:
    return json.loads(message["body"])


def test_a_client_that_goes_stops_the_model(generator: Generator) -> None:
    application = app(generator, max_new_tokens=90)
    request = {"prompt": PROMPT, "stream": True, "logit_bias": {"1": -100}}
    whole = asyncio.run(called(application, request))
    cut = asyncio.run(called(application, request, gone_after=3))
    assert len(cut) < len(whole) // 2
    assert asyncio.run(called(application, request))[-3]["body"] is not None


def test_limits(generator: Generator) -> None:
    async def many() -> list[int]:
        application = app(generator, concurrency=1, queue=1)
        calls = [called(application, {"prompt": PROMPT, "max_tokens": 5}) for _ in range(5)]
        return sorted(sent[0]["status"] for sent in await asyncio.gather(*calls))

    assert asyncio.run(many()) == [200, 200, 429, 429, 429]
    late = asyncio.run(called(app(generator, deadline=1e-9), {"prompt": PROMPT}))
    assert _body(late[1])["choices"][0] == {
        "index": 0,
        "finish_reason": "length",
        "logprobs": None,
        "text": "",
    }
    begin = time.perf_counter()
    few = asyncio.run(called(app(generator, max_new_tokens=3), {"prompt": PROMPT, "max_tokens": 80}))
    assert _body(few[1])["usage"]["completion_tokens"] == 3
    assert time.perf_counter() - begin < 10
