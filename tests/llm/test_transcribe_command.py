"""`pteron transcribe`, in this process and as the page shows it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pteron.cli import main
from pteron.llm import Transcriber
from tests.llm.recipe_folder import ROOT, RecipeFolder
from tests.llm.speech_folder import sound, write_wave

PAGE = ROOT / "docs" / "how-to" / "transcribe-speech.md"
SETTINGS = ("--max-new-tokens", "20", "--threads", "1")


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A WAV file at another rate than the model's."""
    return write_wave(tmp_path_factory.mktemp("talk") / "talk.wav", sound(2.2, 44_100), 44_100)


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Exit code, standard output and errors of the command."""
    capsys.readouterr()
    try:
        code = main(["transcribe", *(str(argument) for argument in arguments)])
    except SystemExit as e:
        code = int(e.code or 0)
    return code, *capsys.readouterr()


def test_what_it_prints(speech: RecipeFolder, talk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = Transcriber(speech.folder, threads=1).transcribe(talk, language="de", max_new_tokens=20)
    options = (talk, "--model", speech.folder, "--language", "de", *SETTINGS)
    assert run(capsys, *options) == (0, expected.text + "\n", "")
    code, out, err = run(capsys, *options, "--timestamps")
    first = expected.segments[0]
    assert out.startswith(f"[{first.start:.2f} - {first.end:.2f}] {first.text}\n")
    assert (code, err) == (0, "language: de\n")
    code, out, _ = run(capsys, *options, "--json")
    found = json.loads(out)
    assert (found["text"], found["language"], found["duration"]) == (expected.text, "de", expected.duration)
    assert [tuple(each["tokens"]) for each in found["segments"]] == [
        each.tokens for each in expected.segments
    ]


def test_mistakes_are_one_line(
    speech: RecipeFolder, talk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ("--model", speech.folder)
    (tmp_path / "a.mp3").write_bytes(b"ID3" + bytes(99))
    cases: list[tuple[tuple[object, ...], int, str]] = [
        ((tmp_path / "a.mp3", *model), 1, "a.mp3 is no WAV file"),
        ((tmp_path / "none.wav", *model), 2, "No such file"),
        ((talk, "--model", tmp_path / "none"), 2, "there is no such folder"),
        ((talk, *model, "--language", "xx"), 1, "does not know the language 'xx'"),
        ((talk, *model, "--max-new-tokens", 0), 2, "--max-new-tokens"),
        ((talk, *model, "--max-new-tokens", 1000), 1, "does not fit into the cache"),
    ]
    for arguments, expected, text in cases:
        code, out, err = run(capsys, *arguments)
        assert (code, out) == (expected, "")
        assert err.startswith("pteron: ")
        assert text in err
        assert len(err.splitlines()) == 1
    assert run(capsys, talk)[0] == 2


def test_the_commands_of_the_page_without_torch(speech: RecipeFolder, talk: Path, tmp_path: Path) -> None:
    shutil.copytree(speech.folder, tmp_path / "whisper")
    shutil.copy(talk, tmp_path / "talk.wav")
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)
    lines = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    assert len(lines) >= 3
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    check = (
        "import sys; from pteron.cli import main; assert main(sys.argv[1:]) == 0;"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    for line in lines:
        words = line.split()
        assert words[0] == "pteron"
        done = subprocess.run(
            [sys.executable, "-c", check, *words[1:]],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
        assert done.stdout.strip()
