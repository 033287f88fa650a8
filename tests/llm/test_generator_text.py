"""Tokenizers of three packages, text in pieces, stop strings."""

from __future__ import annotations

import base64
import io
import sys
from pathlib import Path
from typing import Any

import pytest

from pteron.errors import ProgramError
from pteron.llm.stop_strings import StopStrings
from pteron.llm.tokenizer import (
    FastTokenizer,
    SentencePieceTokenizer,
    TiktokenTokenizer,
    Tokenizer,
    open_tokenizer,
)
from tests.llm.recipe_folder import ROOT, trained_tokenizer

TEXT = "Grüße, 你好 👩‍👩‍👧 naïve\n  two  spaces\tend. "


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder with the file of each package."""
    import sentencepiece

    out = {name: tmp_path_factory.mktemp(name) for name in ("tokenizers", "sentencepiece", "tiktoken")}
    trained_tokenizer().save(str(out["tokenizers"] / "tokenizer.json"))
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter((ROOT / "LICENSE").read_text().splitlines()),
        model_writer=model,
        vocab_size=600,
        byte_fallback=True,
        remove_extra_whitespaces=False,
        normalization_rule_name="identity",
        control_symbols=["<|user|>"],
        minloglevel=2,
    )
    (out["sentencepiece"] / "tokenizer.model").write_bytes(model.getvalue())
    tokens = [bytes([n]) for n in range(256)] + [b"th", b"the", b" the", "ü".encode(), "你".encode()[:2]]
    lines = [base64.b64encode(token) + b" %d" % rank for rank, token in enumerate(tokens)]
    (out["tiktoken"] / "small.tiktoken").write_bytes(b"\n".join(lines) + b"\n")
    return out


CONFIG: dict[str, Any] = {
    "bos_token": "<s>",
    "added_tokens_decoder": {"300": {"content": "<s>"}, "301": {"content": "<|user|>"}},
}
KINDS = {
    "tokenizers": FastTokenizer,
    "sentencepiece": SentencePieceTokenizer,
    "tiktoken": TiktokenTokenizer,
}


@pytest.fixture(params=KINDS)
def tokenizer(request: pytest.FixtureRequest, folders: dict[str, Path]) -> Tokenizer:
    """Each kind."""
    found = open_tokenizer(folders[request.param], CONFIG)
    assert type(found) is KINDS[request.param]
    return found


def test_text_survives(tokenizer: Tokenizer) -> None:
    plain = tokenizer.encode(TEXT, add_special_tokens=False)
    assert tokenizer.decode(plain) == TEXT
    assert max(plain) < tokenizer.size
    first = tokenizer.encode(TEXT)
    assert first[1:] == plain
    assert first[0] == tokenizer.special["<s>"]
    assert tokenizer.decode(first) == TEXT
    assert tokenizer.decode(first, skip_special_tokens=False).startswith("<s>")


def test_special_tokens_in_a_text_are_tokens(tokenizer: Tokenizer) -> None:
    user = tokenizer.special["<|user|>"]
    ids = tokenizer.encode("<|user|>a<|user|>", add_special_tokens=False)
    assert ids.count(user) == 2
    assert user not in tokenizer.encode("<|user", add_special_tokens=False)


def test_pieces_are_the_text(tokenizer: Tokenizer) -> None:
    stream = tokenizer.stream()
    pieces = [stream.push(token) for token in tokenizer.encode(TEXT)]
    pieces.append(stream.finish())
    assert "".join(pieces) == TEXT
    assert not any("\ufffd" in piece for piece in pieces)
    assert "" in pieces, "characters of several tokens come when they are whole"


def test_broken_bytes_do_not_hold_up_the_text(tokenizer: Tokenizer) -> None:
    cut = tokenizer.encode("👧", add_special_tokens=False)[:-1]
    stream = tokenizer.stream()
    held = "".join(map(stream.push, cut))
    assert "\ufffd" not in held
    assert "\ufffd" in stream.finish()
    # Bytes that never become a character.
    stream = tokenizer.stream()
    lone = tokenizer.encode("👧", add_special_tokens=False)[-1]
    pieces = [stream.push(lone) for _ in range(40)]
    assert sum(map(len, pieces)) > 20
    assert stream.finish()


def test_bytes_of_tokens(tokenizer: Tokenizer) -> None:
    table = tokenizer.token_bytes()
    assert len(table) == tokenizer.size
    ids = tokenizer.encode(TEXT, add_special_tokens=False)
    assert b"".join(table[token] for token in ids).decode().strip(" ") == TEXT.strip(" ")
    assert table[tokenizer.special["<|user|>"]] == b""


@pytest.mark.parametrize("name", KINDS)
def test_damaged_files(name: str, folders: dict[str, Path], tmp_path: Path) -> None:
    (source,) = folders[name].iterdir()
    content = source.read_bytes()
    for damage in (b"", content[: len(content) // 2], b"\x00" + content[1:], b"{}"):
        (tmp_path / source.name).write_bytes(damage)
        with pytest.raises(ProgramError, match=r"tokenizer\.|small\.tiktoken"):
            open_tokenizer(tmp_path, {})


@pytest.mark.parametrize(
    ("name", "extra"), [("tokenizers", "llm"), ("sentencepiece",) * 2, ("tiktoken",) * 2]
)
def test_a_missing_package_is_named_with_its_extra(
    name: str, extra: str, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=rf'needs the package {name}: pip install "pteron\[{extra}\]"'):
        open_tokenizer(folders[name], CONFIG)


def test_a_folder_without_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json"):
        open_tokenizer(tmp_path, {})


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_stop_strings_across_pieces(size: int) -> None:
    text = "one stop two stops three"
    pieces = [text[n : n + size] for n in range(0, len(text), size)]

    def given(*stops: str) -> tuple[str, str | None]:
        found, out = StopStrings(stops), ""
        for piece in pieces:
            out += found.push(piece)
            if found.found is not None:
                return out, found.found
        return out + found.finish(), None

    assert given("stops") == ("one stop two ", "stops")
    assert given("two", "stop") == ("one ", "stop")
    assert given("stopping", "threes") == (text, None)
    assert given() == (text, None)
    assert given("") == (text, None)
