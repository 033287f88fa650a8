"""Folders that are damaged, incomplete or mixed up."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pteron.errors import InputError, ProgramError
from pteron.llm import Generator
from tests.llm.recipe_folder import trained_tokenizer
from tests.support.programs import add_method, build


def _text(name: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(text)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a config that is no JSON": (_text("config.json", "{"), "config.json cannot be used: it is no JSON"),
    "a config that is a list": (_text("generation_config.json", "[]"), "it holds no object"),
    "nested JSON": (_text("config.json", "[" * 100_000), "it is no JSON"),
    "a tokenizer that is none": (_text("tokenizer.json", "{}"), "tokenizer.json cannot be used"),
    "a template that is none": (_text("chat_template.jinja", "{% for %}"), "chat template cannot be used"),
    "another program": (
        lambda folder: (folder / "model.pte").write_bytes(build(add_method())),
        "forward takes no input_ids",
    ),
    "half a program": (
        lambda folder: (folder / "model.pte").write_bytes((folder / "model.pte").read_bytes()[:5000]),
        "file",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damages_are_named(copied: Path, name: str) -> None:
    damage, text = DAMAGES[name]
    damage(copied)
    with pytest.raises(ProgramError, match=text):
        Generator(copied)


def test_tokens_that_end_a_text_must_be_numbers(copied: Path) -> None:
    # A program that states them itself is believed first.
    generator = Generator(copied)
    assert generator.folder.eos_ids == {1}
    generator.folder.constants.clear()
    (copied / "generation_config.json").write_text(json.dumps({"eos_token_id": ["a"]}))
    broken = Generator(copied)
    broken.folder.constants.pop("get_eos_ids")
    with pytest.raises(ProgramError, match="something else than numbers"):
        broken.generate("a")


def test_missing_files_are_named(copied: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        Generator(tmp_path / "nowhere")
    (copied / "tokenizer.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json"):
        Generator(copied)
    (copied / "model.pte").unlink()
    with pytest.raises(FileNotFoundError, match=r"model\.pte"):
        Generator(copied)


def test_the_tokenizer_of_another_model(copied: Path) -> None:
    trained_tokenizer(600).save(str(copied / "tokenizer.json"))
    with pytest.raises(InputError, match="tokenizer is another model's; expected tokens below 512"):
        Generator(copied)


def test_json_files_fill_in_what_a_program_does_not_state(copied: Path) -> None:
    generator = Generator(copied)
    found = generator.folder
    found.constants.clear()
    (copied / "generation_config.json").write_text(
        json.dumps({"cache_config": {"max_cache_len": 40}, "eos_token_id": [4, 1], "max_new_tokens": 3})
    )
    other = Generator(copied)
    other.folder.constants.clear()
    assert other.max_seq_len == 40
    assert other.folder.eos_ids == {1, 4}
    assert len(other.generate("Every step", ignore_eos=True).tokens) == 3
    (copied / "generation_config.json").unlink()
    (copied / "config.json").unlink()
    bare = Generator(copied)
    bare.folder.constants.clear()
    with pytest.raises(ProgramError, match="how long its cache is"):
        _ = bare.max_seq_len


def test_a_folder_without_template_has_no_conversations(copied: Path) -> None:
    (copied / "tokenizer_config.json").unlink()
    with pytest.raises(InputError, match="no chat template"):
        Generator(copied).generate([{"role": "user", "content": "hi"}])


def test_fingerprints_tell_programs_apart(copied: Path, tmp_path: Path) -> None:
    first = Generator(copied).folder.fingerprint
    other = Path(shutil.copytree(copied, tmp_path / "other"))
    assert Generator(other).folder.fingerprint == first
    content = bytearray((other / "model.pte").read_bytes())
    content[-100] ^= 1
    (other / "model.pte").write_bytes(content)
    assert Generator(other).folder.fingerprint != first
