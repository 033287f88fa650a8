"""Long work says how much of it is done, and Ctrl-C leaves no half-written file."""

from __future__ import annotations

import io
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pteron
from pteron import _native
from pteron.cli import compare as compare_command
from pteron.cli.progress import Progress
from pteron.devtools import compare as module
from pteron.devtools.program_file import ProgramFile
from pteron.devtools.reduction import reduce_units
from tests.cli.conftest import Command
from tests.cli.test_bad_input import WRITING, call
from tests.support.waiting import until

VALUES = [np.ones((1, 3, 8, 8), np.float32)]


@pytest.mark.parametrize("count", [1, 2, 7, 40])
def test_a_reduction_knows_how_many_checks_there_are_at_most(count: int) -> None:
    for seed in range(20):
        chosen = random.Random(seed)
        needed = set(chosen.sample(range(count), chosen.randint(1, min(count, 4))))
        asked: list[int] = []
        told: list[tuple[int, int]] = []

        def fails(part: tuple[int, ...], asked: list[int] = asked, needed: set[int] = needed) -> bool:
            asked.append(len(part))
            return needed.issubset(part)

        def left(most: int, asked: list[int] = asked, told: list[tuple[int, int]] = told) -> None:
            told.append((len(asked), most))

        assert set(reduce_units(count, fails, left)) == needed
        assert told[0][0] == 0
        # What is said at first holds unless pieces of one are tried again, which only a smaller rest makes.
        assert len(asked) <= told[0][1] + count
        assert all(most >= 1 for _, most in told)
        assert all(a[0] <= b[0] for a, b in pairwise(told))


def _shares_of(work: Callable[[Callable[[float], None]], Any]) -> list[float]:
    found: list[float] = []
    work(found.append)
    assert all(a <= b for a, b in pairwise(found))
    assert found[0] == 0.0
    assert found[-1] < 1.0
    return found


def test_comparisons_tell_the_share_of_their_steps(model_file: Path) -> None:
    program = pteron.load(model_file)
    plain = pteron.load(model_file, runtime=pteron.Runtime(disabled_rules=["all"]))
    both = _shares_of(lambda done: module.compare(program, plain, VALUES, done=done))
    assert both.count(0.5) == 1
    file = io.BytesIO()
    saved = _shares_of(lambda done: module.save_values(file, program, VALUES, done=done))
    assert _shares_of(lambda done: module.compare_saved(program, file, VALUES, done=done)) == saved
    assert both == [
        *(
            at / 2
            for at in _shares_of(lambda done: module.save_values(io.BytesIO(), plain, VALUES, done=done))
        ),
        *((1 + at) / 2 for at in saved),
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["compare", "--against", "rules=all"],
        ["reduce", "--command", "false", "-o", "part.pte"],
        ["bench", "--duration", "0.02", "--threads", "1", "2", "--ceiling", "off"],
        ["pack", "-o", "packed.pte"],
    ],
    ids=lambda words: words[0],
)
def test_commands_pass_the_share_on(
    words: list[str], model_file: Path, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares: list[float | None] = []
    monkeypatch.setattr(Progress, "show", lambda self, text, share=None: shares.append(share))
    monkeypatch.chdir(tmp_path)
    name, *rest = words
    assert command(name, model_file, *rest).code in (0, 1, 2)
    known = [share for share in shares if share is not None]
    assert any(0 < share < 1 for share in known)
    assert all(0 <= share < 1 for share in known)


def test_packing_tells_the_bytes_of_weights(model_file: Path) -> None:
    content = model_file.read_bytes()
    told: list[tuple[int, int]] = []
    packs = _native.pack_weights(content, lambda done, total: told.append((done, total)))
    assert [name for name, _ in packs] == [name for name, _ in _native.pack_weights(content)]
    # Weights and biases of the convolution and of the linear layer, as float32.
    total = 4 * (8 * 3 * 3 * 3 + 8 + 4 * 288 + 4)
    assert {of for _, of in told} == {total}
    done = [share for share, _ in told]
    assert done == sorted(done)
    assert 0 < done[0] < done[-1] == total


def _stopped(*_: object) -> None:
    raise LookupError("enough")


def test_what_its_progress_raises_ends_the_packing(model_file: Path) -> None:
    content = model_file.read_bytes()
    with pytest.raises(LookupError, match="enough"):
        _native.pack_weights(content, _stopped)
    with pytest.raises(KeyboardInterrupt):
        _native.pack_weights(content, _interrupt)


def test_a_signal_ends_the_packing_of_the_command(
    model_file: Path, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []

    def show(_: Progress, text: str, share: float | None = None) -> None:
        shown.append(text)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Progress, "show", show)
    assert command("pack", model_file, "-o", tmp_path / "out").code == 130
    assert len(shown) == 1
    assert list(tmp_path.iterdir()) == []


def _interrupt(*_: object, **__: object) -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("name", WRITING)
def test_interrupted_before_a_file_has_its_name(
    name: str, model_file: Path, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    out.write_text("as it was")
    monkeypatch.setattr(os, "replace", _interrupt)
    assert command(*call(name, model_file, out)).code == 130
    assert out.read_text() == "as it was"
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("name", ["pack", "compare"])
def test_interrupted_at_work(
    name: str, model_file: Path, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProgramFile, "pack", _interrupt)

    def half_saved(file: io.BytesIO, *_: object, **__: object) -> None:
        file.write(b"half")
        _interrupt()

    monkeypatch.setattr(compare_command, "save_values", half_saved)
    done = command(*call(name, model_file, tmp_path / "out"))
    assert (done.code, done.out, done.err) == (130, "", "")
    assert list(tmp_path.iterdir()) == []


def test_a_reduction_stops_at_once_and_goes_on(model_file: Path, tmp_path: Path) -> None:
    script = tmp_path / "check.py"
    begun = tmp_path / "begun"
    script.write_text(
        "import pathlib, sys, time\n"
        f"begun = pathlib.Path({str(begun)!r})\n"
        "if begun.exists() and begun.read_text() == 'wait':\n"
        "    begun.write_text('waits')\n"
        "    time.sleep(600)\n"
        "begun.write_text('wait')\n"
        "sys.exit(1)\n"
    )
    out = tmp_path / "part.pte"
    words = [sys.executable, "-m", "pteron", "reduce", str(model_file), "-o", str(out)]
    running = subprocess.Popen(
        [*words, "--command", f"{sys.executable} {script}"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until(lambda: begun.exists() and begun.read_text() == "waits", "the second check")
        running.send_signal(signal.SIGINT)
        text = running.communicate(timeout=60)
    finally:
        running.kill()
    assert (running.returncode, *text) == (130, "", "")
    # What was tried is kept, so that the same command goes on.
    assert {path.name for path in tmp_path.iterdir()} == {"check.py", "begun", "part.pte.tried.json"}
