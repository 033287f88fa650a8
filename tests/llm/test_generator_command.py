"""`pteron generate` and `pteron chat`, in this process and as the page shows them."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pteron.cli import main
from pteron.llm import Generator
from pteron.llm.token_stream import TokenStream
from tests.llm.recipe_folder import ROOT, RecipeFolder

PROMPT = "Every step"
PAGE = ROOT / "docs" / "how-to" / "language-models.md"


class Command:
    """Runs `pteron` with arguments and an input."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys, self._monkeypatch = capsys, monkeypatch

    def __call__(self, *arguments: object, given: str = "") -> tuple[int, str, str]:
        self._monkeypatch.setattr(sys, "stdin", io.StringIO(given))
        self._capsys.readouterr()
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as e:
            code = int(e.code or 0)
        return code, *self._capsys.readouterr()


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command line."""
    return Command(capsys, monkeypatch)


def test_generate_prints_the_text(recipe: RecipeFolder, generator: Generator, command: Command) -> None:
    expected = generator.generate(PROMPT, max_new_tokens=8).text
    assert command("generate", recipe.folder, PROMPT, "--max-new-tokens", 8) == (0, expected + "\n", "")
    code, out, err = command("generate", recipe.folder, "--max-new-tokens", 8, "--stats", given=PROMPT)
    assert (code, out) == (0, expected + "\n")
    assert "8 new tokens" in err
    drawn = generator.generate(PROMPT, max_new_tokens=8, temperature=0.9, seed=3, logprobs=1)
    options = ("--max-new-tokens", 8, "--temperature", 0.9, "--seed", 3, "--json", "--logprobs", 1)
    code, out, _ = command("generate", recipe.folder, PROMPT, *options)
    found = json.loads(out)
    assert (found["text"], found["seed"], code) == (drawn.text, 3, 0)
    assert len(found["logprobs"]) == len(drawn.tokens)


def test_chat_answers_line_by_line(
    recipe: RecipeFolder, generator: Generator, command: Command, tmp_path: Path
) -> None:
    chat = generator.conversation("Be brief.", max_new_tokens=5)
    answers = [chat.send(line).text for line in ("Why?", "And then?")]
    options = ("chat", recipe.folder, "--system", "Be brief.", "--max-new-tokens", 5)
    saved = tmp_path / "chat.bin"
    given = f"Why?\n\n/help\n/save {saved}\nAnd then?\n/quit\nnever said\n"
    code, out, err = command(*options, given=given)
    assert (code, out) == (0, "".join(answer + "\n" for answer in answers))
    assert err.startswith("commands: /save FILE")
    code, out, _ = command(
        "chat", recipe.folder, "--max-new-tokens", 5, "--restore", saved, given="And then?\n"
    )
    assert (code, out) == (0, answers[1] + "\n")


def test_chat_prints_a_line_of_json_for_each_answer(
    recipe: RecipeFolder, generator: Generator, command: Command
) -> None:
    chat = generator.conversation(max_new_tokens=5)
    expected = [chat.send(line) for line in ("Why?", "And then?")]
    options = ("chat", recipe.folder, "--max-new-tokens", 5, "--json")
    code, out, err = command(*options, given="Why?\n/help\nAnd then?\n")
    answers = [json.loads(line) for line in out.splitlines()]
    assert (code, len(answers)) == (0, 2)
    for answer, one in zip(answers, expected, strict=True):
        assert (answer["role"], answer["text"]) == ("assistant", one.text)
        assert answer["tokens"] == list(one.tokens)
        assert (answer["finish_reason"], answer["prompt_tokens"]) == (one.finish_reason, one.prompt_tokens)
    assert err.startswith("commands: ")


def test_an_answer_that_ctrl_c_ends_is_a_line_too(
    recipe: RecipeFolder, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(stream: TokenStream) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(TokenStream, "__next__", interrupted)
    options = ("chat", recipe.folder, "--max-new-tokens", 5, "--json")
    code, out, _ = command(*options, given="Why?\n")
    answer = json.loads(out)
    assert (code, answer["finish_reason"], answer["text"]) == (0, "cancelled", "")


def test_a_message_that_fails_does_not_end_the_chat(recipe: RecipeFolder, command: Command) -> None:
    given = f"{'long ' * 200}\n/restore nowhere\nWhy?\n"
    code, out, err = command("chat", recipe.folder, "--max-new-tokens", 5, given=given)
    assert code == 0
    assert len(err.splitlines()) == 2
    assert "does not fit into the cache" in err
    assert "nowhere: No such file" in err
    assert out.strip()


@pytest.mark.parametrize(
    ("arguments", "text", "expected"),
    [
        (("{f}/nowhere", "x"), "there is no such folder", 2),
        (("{f}", ""), "the prompt is empty", 2),
        (("{f}", "x", "--temperature", "-1"), "temperature", 1),
        (("{f}", "x", "--max-new-tokens", "0"), "max_new_tokens", 1),
    ],
)
def test_mistakes_are_one_line(
    recipe: RecipeFolder, command: Command, arguments: tuple[str, ...], text: str, expected: int
) -> None:
    code, out, err = command("generate", *[word.format(f=recipe.folder) for word in arguments])
    assert (code, out) == (expected, "")
    assert err.startswith("pteron: ")
    assert text in err
    assert len(err.splitlines()) == 1


def test_a_missing_package_is_named(
    recipe: RecipeFolder, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    code, _, err = command("generate", recipe.folder, "x")
    assert code == 2
    assert 'pip install "pteron[llm]"' in err


def test_the_commands_of_the_page(recipe: RecipeFolder, tmp_path: Path) -> None:
    shutil.copytree(recipe.folder, tmp_path / "model")
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)
    lines = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    assert len(lines) >= 4
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    for line in lines:
        done = subprocess.run(
            line.replace("pteron ", f"{sys.executable} -m pteron ", 1),
            shell=True,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
        assert done.stdout.strip()
