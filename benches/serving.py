"""The Open Inference Protocol under load: uvicorn in a process of its own, Triton's client, over loopback.

    python benches/serving.py [PROGRAM.pte] [--requests 2000] [--clients 8] [--rows 1] [--malformed 10000]

For plain calls in this process, requests one by one, and requests joined (`batch_rows`): answers per second,
median and 99th percentile of milliseconds, processor time of the server per answer, which does not depend on
what else the machine does, and how many were turned away since too many waited (503). Each client is a thread
with a connection that it keeps; inputs are zeros at the largest extents, as bytes, the batch being `--rows`.
Then the same, while other clients send malformed requests, send their body byte by byte, or leave in the
middle of their call; every malformed request has to get a status of 4xx, and the server's memory at the end
is compared with that before.
Without a program, the text encoder of `long_runs.py` is exported. `make bench-serving` runs it.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import os
import random
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from results import Tables, add_json_option
from timing import cpu_model

NAME = "model"


def serve(program: str, settings: dict[str, Any], port: int) -> None:
    """The server, until it is terminated."""
    import uvicorn

    from pteron.integrations.oip import app

    uvicorn.run(app({NAME: program}, **settings), port=port, log_level="error", ws="none")


@contextmanager
def server(program: str, **settings: Any) -> Iterator[tuple[int, int]]:
    """Port and process of a server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(program, settings, port))
    process.start()
    try:
        while ask(port, "GET", "/v2/health/ready")[0] != 200:
            time.sleep(0.05)
        assert process.pid is not None
        yield port, process.pid
    finally:
        process.terminate()
        process.join()


def ask(port: int, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    """Status and body of a request; status 0 where nobody listens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except ConnectionRefusedError:
        return 0, b""
    finally:
        connection.close()


def arrays(program: str, rows: int) -> dict[str, Any]:
    """Zeros for each input."""
    import numpy as np

    import pteron

    found = {}
    for spec in pteron.load(program).inputs():
        shape = [dim if isinstance(dim, int) else dim.max for dim in spec.shape or ()]
        found[spec.name] = np.zeros([rows, *shape[1:]], str(spec.dtype))
    return found


@dataclass
class Load:
    """What came of many requests."""

    seconds: float = 0.0
    used: float = 0.0  # seconds of the server's processor time
    times: list[float] = field(default_factory=list)  # milliseconds of those that were answered
    turned_away: int = 0

    def cells(self) -> tuple[str, ...]:
        """For a table."""
        percentiles = statistics.quantiles(self.times, n=100)
        rate = len(self.times) / self.seconds
        each = f"{self.used / len(self.times) * 1e3:.2f} ms"
        times = f"{percentiles[49]:.2f} ms", f"{percentiles[98]:.2f} ms"
        return f"{rate:.0f}", *times, each, str(self.turned_away)


def client(port: int, given: dict[str, Any], count: int, found_load: Load) -> None:
    """Requests of one client of Triton, one after the other."""
    import tritonclient.http as triton
    from tritonclient.utils import InferenceServerException

    names = {"int64": "INT64", "float32": "FP32"}
    with triton.InferenceServerClient(f"127.0.0.1:{port}") as found:
        inputs = []
        for name, array in given.items():
            one = triton.InferInput(name, list(array.shape), names[str(array.dtype)])
            one.set_data_from_numpy(array, binary_data=True)
            inputs.append(one)
        for _ in range(count):
            begun = time.perf_counter()
            try:
                found.infer(NAME, inputs)
            except InferenceServerException as error:
                if error.status() != "503":
                    raise
                found_load.turned_away += 1
            else:
                found_load.times.append((time.perf_counter() - begun) * 1e3)


def at_once(works: list[Callable[[], None]]) -> float:
    """Seconds until all have ended."""
    threads = [threading.Thread(target=work) for work in works]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begun


def load(at: tuple[int, int], given: dict[str, Any], requests: int, clients: int) -> Load:
    """Requests of clients at once, to a server's port and process."""
    port, pid = at
    found, each, before = Load(), requests // clients, used(pid)
    found.seconds = at_once([lambda: client(port, given, each, found) for _ in range(clients)])
    found.used = used(pid) - before
    return found


def used(pid: int) -> float:
    """Seconds of processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def plain(program: str, given: dict[str, Any], requests: int) -> Load:
    """The same for calls in this process, one thread."""
    import pteron

    method, found = pteron.load(program).load_method(num_threads=1), Load()
    method.execute(given)
    begun, before = time.perf_counter(), time.process_time()
    for _ in range(requests):
        start = time.perf_counter()
        method.execute(given)
        found.times.append((time.perf_counter() - start) * 1e3)
    found.seconds, found.used = time.perf_counter() - begun, time.process_time() - before
    return found


def good_request(given: dict[str, Any]) -> bytes:
    """In JSON."""
    names = {"int64": "INT64", "float32": "FP32"}
    entries = [
        {"name": name, "datatype": names[str(a.dtype)], "shape": list(a.shape), "data": a.ravel().tolist()}
        for name, a in given.items()
    ]
    return json.dumps({"inputs": entries}).encode()


def malformed(port: int, whole: bytes, count: int, found: list[int]) -> None:
    """Requests that end early, or have a byte that is another."""
    chance, path = random.Random(0), f"/v2/models/{NAME}/infer"
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    n = 0
    while n < count:
        place = chance.randrange(len(whole) - 1)
        body = whole[:place] if n % 2 else whole[:place] + b"\0" + whole[place + 1 :]
        try:
            connection.request("POST", path, body)
            answer = connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            connection.close()  # turned away before the body was read: the connection is gone
            continue
        if answer.status == 503:
            continue
        n += 1
        found.append(answer.status)
    connection.close()


def head(length: int) -> bytes:
    """Of a request by hand."""
    return f"POST /v2/models/{NAME}/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode()


def slow(port: int, whole: bytes, is_over: threading.Event) -> None:
    """A client that sends a byte at a time, and never all."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(head(len(whole)))
        for n in range(len(whole) - 1):
            if is_over.wait(0.1):
                return
            try:
                connection.sendall(whole[n : n + 1])
            except OSError:
                return  # status 408, and the connection is closed


def leaving(port: int, whole: bytes, count: int) -> None:
    """Clients that go before their answer."""
    for _ in range(count):
        time.sleep(0.01)
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(head(len(whole)) + whole)


def resident(pid: int) -> float:
    """Megabytes of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


def exported() -> str:
    """The file of a text encoder."""
    from long_runs import encoder

    import pteron

    file = Path("demo-out/serving.pte")
    file.parent.mkdir(exist_ok=True)
    model, example, shapes = encoder()
    pteron.export(model, example, dynamic_shapes=shapes, packed_weights=True, report=False).save(file)
    return str(file)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("program", nargs="?")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--malformed", type=int, default=10_000)
    add_json_option(parser)
    options = parser.parse_args()
    if options.program is None:
        options.program = exported()
    given = arrays(options.program, options.rows)
    print(f"{cpu_model()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    tables = Tables()
    tables.begin(
        ["requests", "answers per second", "median", "99th percentile", "server time each", "turned away"]
    )

    def row(title: str, measured: Load) -> None:
        print(f"{title:44}", *measured.cells(), flush=True)
        tables.row(title, *measured.cells())

    row("plain calls, one thread", plain(options.program, given, options.requests))
    with server(options.program) as at:
        row("each alone, one client", load(at, given, options.requests // 4, 1))
        row(f"each alone, {options.clients} clients", load(at, given, options.requests, options.clients))
    whole, statuses, is_over = good_request(given), list[int](), threading.Event()
    with server(options.program, batch_rows=32, body_seconds=5.0) as at:
        port, pid = at
        row(f"joined, {options.clients} clients", load(at, given, options.requests, options.clients))
        before = resident(pid)
        others = [
            threading.Thread(target=malformed, args=(port, whole, options.malformed // 2, statuses)),
            threading.Thread(target=malformed, args=(port, whole, options.malformed // 2, statuses)),
            threading.Thread(target=leaving, args=(port, whole, 200)),
            *(threading.Thread(target=slow, args=(port, whole, is_over)) for _ in range(20)),
        ]
        for thread in others:
            thread.start()
        row("joined, beside malformed, slow and leaving", load(at, given, options.requests, options.clients))
        for thread in others[:3]:
            thread.join()
        is_over.set()
        for thread in others:
            thread.join()
        refused = sum(400 <= status < 500 for status in statuses)
        row("joined, afterwards", load(at, given, options.requests, options.clients))
        grown = resident(pid) - before
    print(f"{refused} of {len(statuses)} malformed requests refused; memory of the server {grown:+.1f} MB")
    tables.begin(["malformed requests", "refused with 4xx", "memory of the server"])
    tables.row(len(statuses), refused, f"{grown:+.1f} MB")
    tables.save(options)


if __name__ == "__main__":
    main()
