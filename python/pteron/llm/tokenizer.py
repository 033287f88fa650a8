"""Tokenizers by the packages that keep them: `tokenizers`, `sentencepiece`, `tiktoken`.

`open_tokenizer` chooses by the files of a folder. A file of a tokenizer that its package refuses is a
`ProgramError`, one whose tokens the model does not have an `InputError`.
"""

from __future__ import annotations

import abc
import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from pteron.errors import InputError
from pteron.llm.extras import needed
from pteron.llm.model_folder import ModelFolder, damaged

#: What stands for bytes that are no text, yet or at all.
_BROKEN = "\N{REPLACEMENT CHARACTER}"
# The pattern of OpenAI's and Llama 3's tiktoken files, which do not hold one.
_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)


class Tokenizer(abc.ABC):
    """Text to tokens and back."""

    @abc.abstractmethod
    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The tokens of a text; with those that the tokenizer itself puts around it, where asked for.

        Names of special tokens inside the text become these tokens, as chat templates need.
        """

    @abc.abstractmethod
    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of tokens; bytes that are no UTF-8 become U+FFFD."""

    @abc.abstractmethod
    def token_bytes(self) -> list[bytes]:
        """What each token adds to a text, by its number; empty for special ones."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """One more than the largest token."""

    @property
    @abc.abstractmethod
    def special(self) -> Mapping[str, int]:
        """Special tokens by name."""

    def stream(self, *, skip_special_tokens: bool = True) -> TextStream:
        """Decodes token by token."""
        return TextStream(self, skip_special_tokens)


class TextStream:
    """Text piece by piece: a character comes when all its bytes have come.

    The pieces together are the text of all tokens, except where bytes are broken for good.
    """

    #: Tokens that wait for the end of a character before broken bytes are given as U+FFFD.
    PATIENCE = 8

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool) -> None:
        self._tokenizer = tokenizer
        self._skip = skip_special_tokens
        # Tokens from the last piece on: spaces of a word depend on the tokens before it.
        self._ids: list[int] = []
        self._given = 0
        self._shown = ""

    def push(self, token: int) -> str:
        """What the token completes; often nothing."""
        self._ids.append(token)
        text = self._decoded(self._ids)
        if not text.endswith(_BROKEN):
            return self._give(text)
        if len(self._ids) - self._given <= self.PATIENCE:
            return ""
        # A character has at most four bytes, so only the last three can still become one.
        tail = len(text) - len(text.rstrip(_BROKEN))
        stable = text[: len(text) - min(tail, 3)]
        piece, self._shown = stable[len(self._shown) :], stable
        return piece

    def finish(self) -> str:
        """What is left: U+FFFD for bytes whose character never ended."""
        return self._give(self._decoded(self._ids)) if len(self._ids) > self._given else ""

    def _give(self, text: str) -> str:
        piece = text[len(self._shown) :]
        self._ids = self._ids[self._given :]
        self._given = len(self._ids)
        self._shown = self._decoded(self._ids)
        return piece

    def _decoded(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=self._skip)


class FastTokenizer(Tokenizer):
    """`tokenizer.json`, by the package `tokenizers`."""

    def __init__(self, path: Path) -> None:
        package = needed("tokenizers", "llm", f"the tokenizer of {path.name}")
        try:
            self._inner: Any = package.Tokenizer.from_file(str(path))
        except Exception as error:  # the package raises Exception itself
            raise damaged(path.name, str(error)[:200]) from None
        # Limits of training time; a prompt is never cut in silence.
        self._inner.no_truncation()
        self._inner.no_padding()

    @property
    def inner(self) -> Any:
        """The tokenizer of the package."""
        return self._inner

    def limit(self, most: int, side: str) -> None:
        """From now on texts of more than `most` tokens lose those at `side`, "left" or "right", special
        tokens around them excepted.
        """
        self._inner.enable_truncation(most, direction=side)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """As `encode` for each text."""
        return [found.ids for found in self._inner.encode_batch_fast(texts)]

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """As `Tokenizer.encode`."""
        ids: list[int] = self._inner.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """As `Tokenizer.decode`."""
        text: str = self._inner.decode(list(ids), skip_special_tokens=skip_special_tokens)
        return text

    def token_bytes(self) -> list[bytes]:
        """As `Tokenizer.token_bytes`."""
        names = [self._inner.id_to_token(id_) for id_ in range(self.size)]
        added = self._inner.get_added_tokens_decoder()
        is_byte_level = "ByteLevel" in repr(self._inner.decoder)
        read = _byte_level if is_byte_level else _word_piece
        return [
            b"" if name is None or (id_ in added and added[id_].special) else read(name)
            for id_, name in enumerate(names)
        ]

    @cached_property
    def size(self) -> int:
        """As `Tokenizer.size`."""
        return max(self._inner.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    @cached_property
    def special(self) -> Mapping[str, int]:
        """As `Tokenizer.special`."""
        added = self._inner.get_added_tokens_decoder()
        return {token.content: id_ for id_, token in added.items() if token.special}


class SentencePieceTokenizer(Tokenizer):
    """A model of SentencePiece, with `bos` in front where tokenizer_config.json wants it."""

    def __init__(self, path: Path, config: Mapping[str, Any]) -> None:
        package = needed("sentencepiece", "sentencepiece", f"the tokenizer of {path.name}")
        try:
            self._inner: Any = package.SentencePieceProcessor(model_file=str(path))
        except (OSError, RuntimeError, TypeError) as error:
            raise damaged(path.name, str(error)[:200]) from None
        self._adds_bos = bool(config.get("add_bos_token", True)) and self._inner.bos_id() >= 0
        self._adds_eos = bool(config.get("add_eos_token", False)) and self._inner.eos_id() >= 0
        self._splitter = _Splitter(self.special)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """As `Tokenizer.encode`."""
        ids: list[int] = []
        for part in self._splitter.parts(text):
            ids += [part] if isinstance(part, int) else self._inner.encode(part)
        if add_special_tokens:
            ids = [self._inner.bos_id()] * self._adds_bos + ids + [self._inner.eos_id()] * self._adds_eos
        return ids

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """As `Tokenizer.decode`."""
        known = [int(id_) for id_ in ids if 0 <= id_ < self.size]
        if skip_special_tokens:
            text: str = self._inner.decode([id_ for id_ in known if not self._inner.is_control(id_)])
            return text
        # The package leaves control tokens out, so their names go between the texts.
        out = ""
        run: list[int] = []
        for id_ in known:
            if self._inner.is_control(id_):
                out += self._inner.decode(run) + self._inner.id_to_piece(id_)
                run = []
            else:
                run.append(id_)
        return out + str(self._inner.decode(run))

    def token_bytes(self) -> list[bytes]:
        """As `Tokenizer.token_bytes`."""
        return [
            b"" if self._inner.is_control(id_) else _word_piece(self._inner.id_to_piece(id_))
            for id_ in range(self.size)
        ]

    @property
    def size(self) -> int:
        """As `Tokenizer.size`."""
        return int(self._inner.get_piece_size())

    @cached_property
    def special(self) -> Mapping[str, int]:
        """As `Tokenizer.special`."""
        return {self._inner.id_to_piece(id_): id_ for id_ in range(self.size) if self._inner.is_control(id_)}


class TiktokenTokenizer(Tokenizer):
    """A tiktoken file: a line for each token with its bytes in base64 and its rank.

    Such a file holds neither the pattern that cuts a text into words nor special tokens.
    `tokenizer_config.json` may: as "pat_str", and in "added_tokens_decoder"; without the former OpenAI's
    pattern is used.
    """

    def __init__(self, path: Path, config: Mapping[str, Any]) -> None:
        package = needed("tiktoken", "tiktoken", f"the tokenizer of {path.name}")
        self._ranks = _ranks(path)
        pattern = config.get("pat_str", _PATTERN)
        self._special = _added(config)
        taken = set(self._ranks.values())
        self._special = {name: id_ for name, id_ in self._special.items() if id_ not in taken}
        try:
            self._inner: Any = package.Encoding(
                path.name, pat_str=pattern, mergeable_ranks=self._ranks, special_tokens=self._special
            )
        except Exception as error:  # the package raises what its compiled part does
            raise damaged(path.name, str(error)[:200]) from None
        first = self._special.get(_name(config.get("bos_token")))
        self._bos = [first] if first is not None and config.get("add_bos_token", True) else []
        self._bytes = {id_: content for content, id_ in self._ranks.items()}
        self._names = {id_: name for name, id_ in self._special.items()}

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """As `Tokenizer.encode`."""
        ids = self._inner.encode(text, allowed_special="all")
        return [*self._bos, *ids] if add_special_tokens else list(ids)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """As `Tokenizer.decode`."""
        names = {} if skip_special_tokens else self._names
        content = b"".join(self._bytes.get(id_, names.get(id_, "").encode()) for id_ in ids)
        return content.decode(errors="replace")

    def token_bytes(self) -> list[bytes]:
        """As `Tokenizer.token_bytes`."""
        return [self._bytes.get(id_, b"") for id_ in range(self.size)]

    @cached_property
    def size(self) -> int:
        """As `Tokenizer.size`."""
        return max(*self._ranks.values(), *self._special.values(), -1) + 1

    @property
    def special(self) -> Mapping[str, int]:
        """As `Tokenizer.special`."""
        return self._special


class _Splitter:
    """Cuts a text at the names of special tokens."""

    def __init__(self, special: Mapping[str, int]) -> None:
        self._special = {name: id_ for name, id_ in special.items() if name}

    def parts(self, text: str) -> Iterable[str | int]:
        """Texts between special tokens, and these as numbers."""
        while text:
            found = [(at, -len(name), name) for name in self._special if (at := text.find(name)) >= 0]
            if not found:
                yield text
                return
            at, _, name = min(found)
            if at:
                yield text[:at]
            yield self._special[name]
            text = text[at + len(name) :]


def open_tokenizer(place: Path, config: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer of a file, or of a folder by the first of these: tokenizer.json, *.tiktoken,
    tokenizer.model, spiece.model. A tokenizer.model may be SentencePiece's or a tiktoken file.

    Raises FileNotFoundError without one, ImportError without its package, ProgramError for a damaged file.
    """
    files = [place]
    if not place.is_file():
        names = ("tokenizer.model", "spiece.model")
        files = [
            place / "tokenizer.json",
            *sorted(place.glob("*.tiktoken")),
            *(place / name for name in names),
        ]
    path = next((file for file in files if file.exists()), None)
    if path is None:
        what = "the folder has no tokenizer.json, tokenizer.model or *.tiktoken"
        raise FileNotFoundError(2, what, str(place))
    if path.suffix == ".json":
        return FastTokenizer(path)
    return TiktokenTokenizer(path, config) if _is_tiktoken(path) else SentencePieceTokenizer(path, config)


def open_tokenizer_for(
    folder: ModelFolder, place: Path | None = None, config: Mapping[str, Any] | None = None
) -> Tokenizer:
    """The tokenizer of a model: that of its folder, or the one at `place`, of which `config` states more.

    InputError where it is another model's; else as `open_tokenizer`.
    """
    tokenizer = open_tokenizer(place or folder.path, folder.tokenizer_config if config is None else config)
    vocabulary = folder.signature.vocabulary
    if tokenizer.size > vocabulary:
        raise InputError(
            "the tokenizer is another model's",
            expected=f"tokens below {vocabulary}, as the program has logits",
            got=f"tokens up to {tokenizer.size - 1}",
        )
    return tokenizer


def _is_tiktoken(path: Path) -> bool:
    with path.open("rb") as file:
        first = file.readline(1000).split()
    return len(first) == 2 and first[1].isdigit()


def _ranks(path: Path) -> dict[bytes, int]:
    found = {}
    try:
        for line in path.read_bytes().splitlines():
            if line.strip():
                content, rank = line.split()
                found[base64.b64decode(content, validate=True)] = int(rank)
    except (ValueError, binascii.Error):
        raise damaged(path.name, "a line is not the base64 of a token and its rank") from None
    if sorted(found.values()) != list(range(len(found))):
        raise damaged(path.name, "the ranks are not 0, 1, 2, ...")
    return found


def _added(config: Mapping[str, Any]) -> dict[str, int]:
    entries = config.get("added_tokens_decoder")
    if not isinstance(entries, dict):
        return {}
    try:
        return {str(entry["content"]): int(id_) for id_, entry in entries.items()}
    except (TypeError, KeyError, ValueError):
        raise damaged("tokenizer_config.json", "added_tokens_decoder has entries without content") from None


def _name(token: Any) -> str:
    """A token in tokenizer_config.json: a text, or an object that holds it."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else ""


def _byte_level(name: str) -> bytes:
    """Bytes of a token whose name has a printable character for every byte, as GPT-2's have."""
    if all(letter in _BYTES for letter in name):
        return bytes(_BYTES[letter] for letter in name)
    return name.encode()


def _word_piece(name: str) -> bytes:
    """Bytes of a token of SentencePiece's making: U+2581 for a space, <0x0A> for a byte."""
    if len(name) == 6 and name.startswith("<0x") and name.endswith(">"):
        return bytes([int(name[3:5], 16)])
    return name.replace("\u2581", " ").encode()


def _byte_characters() -> dict[str, int]:
    """Character → byte: printable Latin-1 stands for itself, the rest in order from U+0100."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in plain]
    return {**{chr(byte): byte for byte in plain}, **{chr(0x100 + n): byte for n, byte in enumerate(rest)}}


_BYTES = _byte_characters()
