"""`pteron report`, and the HTML format of `pteron profile`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Command
from tests.cli.conftest import command as command  # a fixture
from tests.report.test_page import data_of


@pytest.fixture
def encoder(files: dict[str, bytes], tmp_path: Path) -> Path:
    path = tmp_path / "encoder.pte"
    path.write_bytes(files["encoder"])
    return path


def page(command: Command, out: Path, *arguments: object) -> dict[str, Any]:
    done = command(*arguments, "-o", out)
    assert done.code == 0, done.err
    return data_of(out.read_text())


def test_a_program_alone(encoder: Path, command: Command, tmp_path: Path) -> None:
    data = page(command, tmp_path / "a.html", "report", encoder)
    assert data["programs"][0]["name"] == "encoder.pte"
    assert "ns" not in data["runs"][0]
    first = (tmp_path / "a.html").read_bytes()
    shown = command("report", encoder, "-o", tmp_path / "a.html", "--json").json
    assert shown == {"file": str(tmp_path / "a.html"), "bytes": len(first)}
    page(command, tmp_path / "a.html", "report", encoder)
    assert (tmp_path / "a.html").read_bytes() == first


def test_measured_now_or_before(encoder: Path, command: Command, tmp_path: Path) -> None:
    data = page(command, tmp_path / "a.html", "report", encoder, "--runs", 2, "--ceiling", "100,10")
    assert data["runs"][0]["ceiling"] == [100.0, 10.0]
    assert len(data["runs"][0]["calls"]) == 2
    (tmp_path / "other").mkdir()
    saved = [tmp_path / "one.json", tmp_path / "other" / "one.json"]
    for path in saved:
        assert command("profile", encoder, "--runs", 2, "--json", "-o", path).code == 0
    data = page(command, tmp_path / "b.html", "report", encoder, "--profile", saved[0], "--profile", saved[1])
    assert [run["label"] for run in data["runs"]] == ["one", "one 2"]
    assert [run["program"] for run in data["runs"]] == [0, 0]
    known = json.loads(saved[0].read_text())["ceiling"]
    assert data["runs"][0]["ceiling"] == [known["gflops"], known["gigabytes"]]
    without = page(command, tmp_path / "b.html", "report", encoder, "--profile", saved[0], "--ceiling", "off")
    assert without["runs"][0]["ceiling"] is None
    data = page(command, tmp_path / "c.html", "profile", encoder, "--runs", 2, "--format", "html")
    assert data["runs"][0]["threads"] == 1


def test_two_programs_and_errors(
    encoder: Path, files: dict[str, bytes], command: Command, tmp_path: Path
) -> None:
    other = tmp_path / "counter.pte"
    other.write_bytes(files["counter"])
    data = page(command, tmp_path / "a.html", "report", encoder, other)
    assert [run["program"] for run in data["runs"]] == [0, 1]
    errors = tmp_path / "errors.json"
    errors.write_text(command("compare", encoder, "--against", "rules=all", "--json").out)
    data = page(command, tmp_path / "b.html", "report", encoder, "--errors", errors)
    assert any(error is not None for error in data["runs"][0]["errors"])


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--runs", "-1"], "'-1' is below 0"),
        (["--ceiling", "0,1"], "must be positive"),
        (["--ceiling", "nan,1"], "must be positive"),
        (["--ceiling", "1"], "not measure, off, or two numbers"),
        (["--ceiling", "measure"], "is for --runs"),
        (["--profile", "{ceiling}"], "not the output of pteron profile"),
        (["--runs", "1", "--profile", "{text}"], "give one of them"),
        (["--profile", "{text}"], "not JSON"),
        (["--profile", "{number}"], "not the output of pteron profile"),
        (["--errors", "{number}"], "not the output of pteron compare"),
        (["--profile", "{none}"], "No such file"),
        (["{self}", "--profile", "{number}"], "1 profiles for 2 programs"),
    ],
)
def test_wrong_use(arguments: list[str], why: str, encoder: Path, command: Command, tmp_path: Path) -> None:
    (tmp_path / "text.json").write_text("no JSON")
    (tmp_path / "number.json").write_text("1")
    saved = command("profile", encoder, "--runs", 1, "--json", "--ceiling", "off").json
    (tmp_path / "ceiling.json").write_text(json.dumps({**saved, "ceiling": {"gflops": -1, "gigabytes": "x"}}))
    names = {name: tmp_path / f"{name}.json" for name in ("text", "number", "none", "ceiling")}
    line = [argument.format(self=encoder, **names) for argument in arguments]
    done = command("report", encoder, *line, "-o", tmp_path / "out.html")
    assert done.code == 2
    assert why in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "out.html").exists()
