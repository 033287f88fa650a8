"""The Open Inference Protocol: with Triton's own client over loopback, and called as ASGI."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pteron
from pteron.integrations.oip import App, app
from tests.support.programs import build, counter_method, dynamic_add_method, endless_method
from tests.support.waiting import until

INFER = "/v2/models/add/infer"
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def made(**settings: Any) -> App:
    """An application with a model that adds, and one that never ends."""
    models = {"add": build(dynamic_add_method()), "endless": build(endless_method())}
    return app(models, **settings)


def entry(name: str, array: np.ndarray[Any, Any]) -> dict[str, Any]:
    """An input in JSON."""
    return {"name": name, "datatype": "FP32", "shape": list(array.shape), "data": array.ravel().tolist()}


def request(array: np.ndarray[Any, Any] = X) -> dict[str, Any]:
    """A request that adds an array to itself."""
    return {"inputs": [entry("x", array), entry("y", array)]}


async def called(
    application: App,
    body: Any,
    path: str = INFER,
    *,
    method: str = "POST",
    headers: Any = (),
    goes: float | None = None,
    parts: tuple[Any, ...] = (),
) -> tuple[int, Any]:
    """Status and body of an answer, status 0 for none; the client goes after so many seconds."""
    sent: list[Any] = []
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    messages = [*parts, {"type": "http.request", "body": content}]

    async def receive() -> Any:
        if messages:
            message = messages.pop(0)
            await asyncio.sleep(message.pop("after", 0))
            return message
        await asyncio.sleep(3600 if goes is None else goes)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await application({"type": "http", "path": path, "method": method, "headers": headers}, receive, send)
    if not sent:
        return 0, None
    content = sent[1]["body"]
    return sent[0]["status"], json.loads(content) if content else None


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Triton's client of a server with uvicorn."""
    import tritonclient.http
    import uvicorn

    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(made(), log_level="error", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [port]})
        thread.start()
        until(lambda: server.started, "the server has started")
        with tritonclient.http.InferenceServerClient(f"127.0.0.1:{port.getsockname()[1]}") as found:
            yield found
        server.should_exit = True
        thread.join()


def test_metadata(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("add")
    assert not client.is_model_ready("none")
    assert client.get_server_metadata()["version"] == pteron.__version__
    for version in ("", "1"):
        found = client.get_model_metadata("add", version)
        assert found["inputs"] == [
            {"name": name, "datatype": "FP32", "shape": [-1, 3]} for name in ("x", "y")
        ]
        assert [output["shape"] for output in found["outputs"]] == [[-1, 3]]
    assert [model["name"] for model in client.get_model_repository_index()] == ["add", "endless"]


@pytest.mark.parametrize("sends_bytes", [False, True])
@pytest.mark.parametrize("wants_bytes", [False, True])
def test_inference(client: Any, sends_bytes: bool, wants_bytes: bool) -> None:
    import tritonclient.http as triton

    name = client.get_model_metadata("add")["outputs"][0]["name"]
    inputs = [triton.InferInput(one, [2, 3], "FP32") for one in ("x", "y")]
    for one in inputs:
        one.set_data_from_numpy(X, binary_data=sends_bytes)
    outputs = [triton.InferRequestedOutput(name, binary_data=wants_bytes)]
    found = client.infer("add", inputs, outputs=outputs, request_id="7")
    np.testing.assert_array_equal(found.as_numpy(name), X + X)
    assert found.get_response()["id"] == "7"


@pytest.mark.parametrize(
    ("size", "behind", "says"),
    [
        (24, b"", "only 0 bytes are left"),
        (24, bytes(23), "only 23 bytes are left"),
        (23, bytes(23), "expected 24 bytes for the shape; got 23"),
        (24, bytes(25), "1 bytes behind the last binary input"),
        (-1, bytes(24), "an integer of at least 0"),
        (True, bytes(24), "an integer of at least 0"),
    ],
)
def test_damaged_bytes_behind_the_json(size: Any, behind: bytes, says: str) -> None:
    inputs = [{"name": "x", "datatype": "FP32", "shape": [2, 3], "parameters": {"binary_data_size": size}}]
    head = json.dumps({"inputs": [entry("y", X), *inputs]}).encode()
    headers = [(b"inference-header-content-length", str(len(head)).encode())]
    status, answer = asyncio.run(called(made(), head + behind, headers=headers))
    assert status == 400
    assert says in answer["error"]


def test_mistakes_name_their_field() -> None:
    application = made(max_body_bytes=2000)
    for path, value, status, says in (
        ((), [], 400, "the body: expected an object"),
        (("inputs",), {}, 400, "inputs: expected a list"),
        (("inputs", 0, "name"), "z", 400, "inputs[0].name: expected one of x, y"),
        (("inputs", 1, "name"), "x", 400, "inputs[1].name: the input 'x' comes twice"),
        (("inputs", 0, "datatype"), "FP64", 400, "inputs[0].datatype: expected FP32"),
        (("inputs", 0, "shape"), [2], 400, "inputs[0].shape: expected 2 dimensions; got 1"),
        (("inputs", 0, "shape"), [9, 3], 400, "inputs[0].shape[0]: expected 1 to 8; got 9"),
        (("inputs", 0, "data"), [1.0], 400, "inputs[0].data: expected 6 elements"),
        (("inputs", 0, "data"), [True] * 6, 400, "inputs[0].data: expected numbers"),
        (("inputs", 0, "data"), [1e39] * 6, 400, "inputs[0].data: a number is beyond"),
        (("inputs", 0, "data"), [[1] * 2] * 3, 400, "inputs[0].data: the lists in lists"),
        (("outputs",), [{"name": "none"}], 400, "outputs[0].name"),
        (("parameters",), {"sequence_id": 3}, 400, "parameters.sequence_id"),
        (("parameters",), {"timeout": -1}, 400, "parameters.timeout"),
        (("id",), "x" * 3000, 413, "longer than 2000 bytes"),
    ):
        body: Any = request()
        if path:
            holder = body
            for step in path[:-1]:
                holder = holder[step]
            holder[path[-1]] = value
        else:
            body = value
        found = asyncio.run(called(application, body))
        assert found[0] == status
        assert says in found[1]["error"]
    unequal = {"inputs": [entry("x", X), entry("y", X[:1])]}
    assert asyncio.run(called(application, unequal))[0] == 400
    assert asyncio.run(called(application, b"", "/v2/models/none"))[0] == 404
    assert asyncio.run(called(application, b"", "/v2/models/add/versions/2"))[0] == 404
    assert asyncio.run(called(application, b"", INFER, method="GET"))[0] == 405
    zipped = called(application, b"", headers=[(b"content-encoding", b"gzip")])
    assert asyncio.run(zipped)[0] == 415


VALUES: list[Any] = [None, True, -1, 0, 10**30, 1.5, "", "x", "FP32", [], [[]], {}, [None], [-1, 3], {"a": 1}]


def damaged(chance: random.Random) -> tuple[bytes, Any]:
    """A request with a mistake somewhere, in its JSON, its bytes or its header."""
    body: Any = request()
    holder, key = chance.choice(
        [
            (body, "inputs"),
            *((one, key) for one in body["inputs"] for key in ("name", "datatype", "shape", "data")),
        ]
    )
    kind = chance.randrange(5)
    headers: Any = []
    if kind == 0:
        del holder[key]
    elif kind == 1:
        holder[key] = chance.choice([value for value in VALUES if value != holder[key]])
    elif kind == 2:
        holder[f"unknown{chance.random()}"] = chance.choice(VALUES)
    content = json.dumps(body).encode()
    if kind == 3:
        content = content[: chance.randrange(len(content))]
    elif kind == 4:
        wrong = [b"-1", b"x", b"", b"9" * 18, b"9" * 400, str(chance.randrange(len(content))).encode()]
        headers = [(b"inference-header-content-length", chance.choice(wrong))]
    return content, headers


def test_malformed_requests_are_refused_and_harm_nothing() -> None:
    async def many() -> None:
        application, chance = made(), random.Random(20)
        for _ in range(10_000):
            content, headers = damaged(chance)
            status, answer = await called(application, content, headers=headers)
            assert 400 <= status < 500, (status, content, headers)
            assert answer["error"]
        status, answer = await called(application, request())
        assert (status, answer["outputs"][0]["data"]) == (200, (X + X).ravel().tolist())

    asyncio.run(many())


def endless(**more: Any) -> dict[str, Any]:
    """A request to the model that never ends."""
    return {**request(), **more}


def test_a_deadline_stops_a_call() -> None:
    path = "/v2/models/endless/infer"
    status, answer = asyncio.run(called(made(deadline=0.05), endless(), path))
    assert (status, "deadline of 0.05 s" in answer["error"]) == (504, True)
    asked = endless(parameters={"timeout": 20_000})
    assert asyncio.run(called(made(), asked, path))[0] == 504


def test_a_client_that_goes_stops_its_call() -> None:
    async def gone_then_served() -> None:
        application = made(concurrency=1)
        gone = await called(application, endless(), "/v2/models/endless/infer", goes=0.05)
        assert gone == (0, None)
        assert (await called(application, request()))[0] == 200

    asyncio.run(gone_then_served())


def test_a_slow_client() -> None:
    late = {"type": "http.request", "body": b"{", "more_body": True, "after": 0.5}
    assert asyncio.run(called(made(body_seconds=0.02), b"}", parts=(late,)))[0] == 408


def test_too_many_requests() -> None:
    async def many() -> list[int]:
        application = made(concurrency=1, queue=1, deadline=0.2)
        calls = [called(application, endless(), "/v2/models/endless/infer") for _ in range(4)]
        return sorted(status for status, _ in await asyncio.gather(*calls))

    assert asyncio.run(many()) == [503, 503, 504, 504]


def test_what_cannot_be_served() -> None:
    for models, settings, says in (
        ({}, {}, "models"),
        ({"a/b": build(dynamic_add_method())}, {}, "part of a path"),
        ({"a": build(counter_method())}, {}, "keeps state"),
        ({"a": build(dynamic_add_method())}, {"concurrency": 0}, "concurrency"),
    ):
        with pytest.raises(pteron.errors.InputError, match=says):
            app(models, **settings)


def joining(**settings: Any) -> App:
    """An application whose requests run together, one call at a time."""
    return made(batch_rows=8, concurrency=1, **settings)


def noted(application: App, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of each call of the model that adds."""
    rows: list[int] = []
    model = application._models["add"]
    call = model.call
    monkeypatch.setattr(model, "call", lambda given: rows.append(len(given["x"])) or call(given))
    return rows


def test_requests_that_wait_run_together(monkeypatch: pytest.MonkeyPatch) -> None:
    async def many() -> None:
        application = joining(batch_seconds=30.0)
        rows = noted(application, monkeypatch)
        arrays = [X + n for n in range(8)]
        answers = await asyncio.gather(*(called(application, request(array)) for array in arrays))
        for array, (status, answer) in zip(arrays, answers, strict=True):
            assert status == 200
            assert answer["outputs"][0]["shape"] == [2, 3]
            assert answer["outputs"][0]["data"] == (array + array).ravel().tolist()
        assert rows == [8, 8], "eight rows are what one call takes: nobody waited for more"

    asyncio.run(many())


def test_a_request_alone_waits_no_longer_than_it_is_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    application = joining(batch_seconds=0.01)
    rows = noted(application, monkeypatch)
    assert asyncio.run(called(application, request()))[0] == 200
    assert rows == [2]


def test_what_one_request_is_refused_for_does_not_fail_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def many() -> None:
        application = joining(batch_seconds=30.0)
        model = application._models["add"]
        call = model.call

        def refusing(given: Any) -> Any:
            if (given["x"] == 13).any():
                return call({**given, "y": given["y"][:0]})  # unequal rows: InputError
            return call(given)

        monkeypatch.setattr(model, "call", refusing)
        arrays = [X, np.full((2, 3), 13, np.float32), X + 1, X + 2]
        answers = await asyncio.gather(*(called(application, request(array)) for array in arrays))
        assert [status for status, _ in answers] == [200, 400, 200, 200]
        assert answers[2][1]["outputs"][0]["data"] == (2 * (X + 1)).ravel().tolist()

    asyncio.run(many())


def test_requests_leave_a_call_one_by_one_and_the_last_stops_it() -> None:
    path = "/v2/models/endless/infer"

    async def leaving() -> None:
        application = joining()
        calls = [called(application, endless(), path, goes=after) for after in (0.05, 0.1, 0.15)]
        assert await asyncio.gather(*calls) == [(0, None)] * 3
        assert (await called(application, request()))[0] == 200, "the slot is free again"
        late = endless(parameters={"timeout": 30_000})
        both = await asyncio.gather(
            called(application, late, path), called(application, endless(), path, goes=0.2)
        )
        assert [status for status, _ in both] == [504, 0]
        assert (await called(application, request()))[0] == 200

    asyncio.run(leaving())


def test_joining_needs_a_batch_dimension() -> None:
    from tests.support.programs import add_method

    with pytest.raises(pteron.errors.InputError, match="no model has a first dimension that varies"):
        app({"fixed": build(add_method())}, batch_rows=4)
    for settings in ({"batch_rows": 0}, {"batch_rows": 2, "batch_seconds": -1.0}):
        with pytest.raises(pteron.errors.InputError, match="batch_"):
            made(**settings)
