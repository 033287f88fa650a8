"""`pteron bench`: a process per setting, and the comparison with an earlier run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pteron.cli.bench import _vary
from tests.cli.conftest import Command


@pytest.fixture(scope="module")
def rows(model_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    import contextlib
    import io

    from pteron.cli import main

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["bench", str(model_file), "--duration", "0.1", "--streams", "1", "2", "--json"]) == 0
    path = tmp_path_factory.mktemp("bench") / "old.json"
    path.write_text(out.getvalue())
    return path


def test_a_row_for_each_setting(rows: Path) -> None:
    found = json.loads(rows.read_text())["rows"]
    assert [(row["threads"], row["streams"]) for row in found] == [(1, 1), (1, 2)]
    for row in found:
        assert row["us"]["p50"] <= row["us"]["p90"] <= row["us"]["p99"] <= row["us"]["p99.9"]
        assert row["calls"] > 0
        assert row["load_ms"] > 0
        assert row["memory_mb"] > 0
        assert row["is_deterministic"]


def test_what_became_slower_is_found(rows: Path, model_file: Path, command: Command, tmp_path: Path) -> None:
    old = json.loads(rows.read_text())
    for row in old["rows"]:
        row["call_us"] = [value / 100 for value in row["call_us"]]
        row["us"] = {name: value / 100 for name, value in row["us"].items()}
    (tmp_path / "fast.json").write_text(json.dumps(old))
    command_line = ["bench", model_file, "--duration", "0.05", "--compare"]
    slower = command(*command_line, tmp_path / "fast.json")
    assert slower.code == 1
    assert "x of the earlier median" in slower.out
    for row in old["rows"]:
        row["call_us"] = [value * 1e6 for value in row["call_us"]]
    (tmp_path / "slow.json").write_text(json.dumps(old))
    assert command(*command_line, tmp_path / "slow.json").code == 0


def test_results_must_be_the_same_bytes(rows: Path, model_file: Path, command: Command) -> None:
    words = ["bench", model_file, "--duration", "0.02", "--threads", "1", "2", "--assert-deterministic"]
    assert command(*words).code == 0
    found = json.loads(rows.read_text())["rows"]
    assert _vary(found) is None
    found[1]["outputs"] = "other"
    assert _vary(found) == "1 threads, 2 streams: other bytes than the first setting"
    found[0]["is_deterministic"] = False
    assert _vary(found) == "1 threads, 1 streams: two calls gave other bytes"


def test_wrong_use(model_file: Path, command: Command, tmp_path: Path) -> None:
    assert command("bench", model_file, "--duration", "0").code == 2
    (tmp_path / "other.json").write_text("{}")
    done = command("bench", model_file, "--compare", tmp_path / "other.json")
    assert done.code == 2
    assert "not the output of pteron bench --json" in done.err
    done = command("bench", model_file, "-i", "y=1x2", "--duration", "0.05")
    assert done.code == 2
    assert "no input 'y'" in done.err
