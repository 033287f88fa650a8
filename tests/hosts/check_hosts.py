"""The recipes of docs/how-to/at-scale.md on the engines themselves, a preloaded server: `make test-hosts`.

Runs in the environment of the engines, without torch; `EXPORTER` names a Python with it, which exports the
program of the page.
"""

from __future__ import annotations

import ast
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pteron
from tests.support.waiting import until
from tests.test_docs import script_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "at-scale.md"
#: What every process of an engine finds: Spark starts workers with another Python where nobody says.
ENVIRONMENT = {
    **os.environ,
    "PYSPARK_PYTHON": sys.executable,
    "PYTHONWARNINGS": "default",
    "RAY_DEDUP_LOGS": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}
SECONDS = 900


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts of the page beside its program."""
    made = tmp_path_factory.mktemp("hosts")
    (made / "page.py").write_text(script_of(PAGE, made))
    exporter = os.environ["EXPORTER"]
    subprocess.run([exporter, "page.py"], cwd=made, check=True, timeout=SECONDS)
    return made


@pytest.fixture(scope="module")
def expected(folder: Path) -> np.ndarray[Any, Any]:
    """The vectors of all rows from this process."""
    sys.path.insert(0, str(folder))
    try:
        import tokens
    finally:
        sys.path.remove(str(folder))
    ids, mask = tokens.read()
    (vectors,) = pteron.Predictor(folder / "encoder.pte")({"input_ids": ids, "attention_mask": mask}).values()
    return vectors


def run(folder: Path, script: str) -> None:
    """Runs a script of the page to its end."""
    done = subprocess.run(
        [sys.executable, f"{script}.py"],
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]


@pytest.mark.parametrize("script", ["polars_columns", "dask_blocks", "ray_data", "spark_udf"])
def test_a_recipe_gives_every_row_in_order(folder: Path, expected: np.ndarray[Any, Any], script: str) -> None:
    run(folder, script)
    found = np.load(folder / f"{script}.npy")
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_beam_gives_every_element_at_its_own_length(folder: Path, expected: np.ndarray[Any, Any]) -> None:
    run(folder, "beam_inference")
    lines = [line for file in folder.glob("beam-*.txt") for line in file.read_text().splitlines()]
    found = dict(map(ast.literal_eval, lines))
    assert len(lines) == len(found) == len(expected)
    for n, vector in found.items():
        np.testing.assert_allclose(vector, expected[n], rtol=1e-5, atol=1e-6)


def test_beam_takes_the_largest_batch_and_the_lengths_from_the_program(folder: Path) -> None:
    from pteron.integrations.beam import PteronModelHandler

    uri = (folder / "encoder.pte").as_uri()
    pad: dict[str, Any] = {"input_ids": 0, "attention_mask": 0}
    handler = PteronModelHandler(uri, buckets={"s1": (16, 64)}, pad_values=pad)
    found = dict(handler.batch_elements_kwargs())
    assert (found["max_batch_size"], found["bucket_boundaries"]) == (64, [17, 65])
    assert found["length_fn"]({"input_ids": np.zeros(16), "attention_mask": np.zeros(16)}) == 16
    given = PteronModelHandler(uri, max_batch_size=5, batch_length_fn=len, batch_bucket_boundaries=[3])
    assert dict(given.batch_elements_kwargs()) == {
        "max_batch_size": 5,
        "length_fn": len,
        "bucket_boundaries": [3],
    }


def test_beam_takes_keys_and_lengths_and_refuses_what_does_not_fit(
    folder: Path, expected: np.ndarray[Any, Any]
) -> None:
    """In this process: keys, rows of different lengths, elements that do not fit."""
    import apache_beam as beam
    import tokens
    from apache_beam.ml.inference.base import KeyedModelHandler, RunInference
    from apache_beam.testing.test_pipeline import TestPipeline
    from apache_beam.testing.util import assert_that

    from pteron.integrations.beam import PteronModelHandler

    pad: dict[str, Any] = {"input_ids": 0, "attention_mask": 0}
    handler = PteronModelHandler(str(folder / "encoder.pte"), buckets={"s1": (64,)}, pad_values=pad)
    ids, mask = tokens.read()
    rows = [
        (n, {"input_ids": ids[n, : mask[n].sum()], "attention_mask": mask[n, : mask[n].sum()]})
        for n in range(20)
    ]

    def check(found: list[Any]) -> None:
        assert len(found) == len(rows)
        for key, result in found:
            (vector,) = result.inference.values()
            np.testing.assert_allclose(vector, expected[key], rtol=1e-5, atol=1e-6)
            assert result.model_id.endswith("encoder.pte")

    with TestPipeline(runner="FnApiRunner") as pipeline:
        results = pipeline | beam.Create(rows) | RunInference(KeyedModelHandler(handler))
        assert_that(results, check)
    model = handler.load_model()
    with pytest.raises(pteron.InputError, match="other inputs"):
        handler.run_inference([{"input_ids": ids[0]}], model)
    with pytest.raises(pteron.InputTypeError, match="without names"):
        handler.run_inference([ids[0]], model)
    assert handler.get_num_bytes([row for _, row in rows[:1]]) == 16 * int(mask[0].sum())


@contextmanager
def served(folder: Path) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """The port of gunicorn with two preloaded workers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        "-m",
        "gunicorn",
        "--preload",
        "--workers",
        "2",
        "--threads",
        "4",
        "--bind",
        f"127.0.0.1:{port}",
    ]
    with (folder / "gunicorn.txt").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, *command, "--graceful-timeout", "300", "wsgi:application"],
            cwd=folder,
            env=ENVIRONMENT,
            stderr=log,
            stdout=log,
        )
    try:
        until(lambda: _connects(port), "gunicorn listens")
        yield port, server
    finally:
        if server.poll() is None:
            server.kill()
        server.wait()


def _connects(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def _workers(server: subprocess.Popen[bytes]) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds workers in /proc")
def test_preloaded_workers_of_gunicorn_serve_and_end_at_once(
    folder: Path, expected: np.ndarray[Any, Any]
) -> None:
    import tokens

    ids, mask = tokens.read()
    with served(folder) as (port, server):
        until(lambda: len(_workers(server)) == 2, "two workers")
        for n in range(0, 40, 4):
            rows = slice(n, n + 4)
            body = json.dumps({"input_ids": ids[rows].tolist(), "attention_mask": mask[rows].tolist()})
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", body.encode(), timeout=60) as answer:
                np.testing.assert_allclose(json.load(answer), expected[rows], rtol=1e-5, atol=1e-6)
        shared = [_shared_kilobytes(pid) for pid in _workers(server)]
        assert min(shared) > 0
        begun = time.monotonic()
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=60) == 0
        assert time.monotonic() - begun < 60, "long before the 300 seconds after which gunicorn kills"


def _shared_kilobytes(pid: int) -> int:
    """Memory of the program's file that a process has in common with others."""
    total, is_file = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        head = line.split()
        if "-" in head[0] and not head[0].endswith(":"):
            is_file = line.endswith("encoder.pte")
        elif is_file and head[0] in ("Shared_Clean:", "Shared_Dirty:"):
            total += int(head[1])
    return total
