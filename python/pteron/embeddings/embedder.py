"""`Embedder`: a folder with an embedding model, texts in, vectors out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pteron.embeddings.embedding_folder import EmbeddingFolder, is_between
from pteron.embeddings.similarity import SIMILARITIES, unit
from pteron.embeddings.token_batches import TokenBatches
from pteron.errors import InputError, InputTypeError

Vectors = npt.NDArray[np.float32]
#: Texts in a call of the program, as in sentence-transformers.
BATCH_SIZE = 32
#: Texts that are tokenised, and put into batches by their lengths, at a time.
_WINDOW = 4096
_PASSAGES = ("document", "passage", "corpus")


class Embedder:
    """Vectors of texts, as `SentenceTransformer.encode` gives them, without torch and transformers.

    Any number of threads may call it at once. It can be pickled where the folder is there on the other side.

    Attributes:
        folder: the program and what its files state.
        threads, max_seq_length, batch_size, truncate_dim, normalize_embeddings: as given.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        threads: int | None = None,
        max_seq_length: int | None = None,
        batch_size: int = BATCH_SIZE,
        truncate_dim: int | None = None,
        normalize_embeddings: bool = False,
    ) -> None:
        """Opens a folder that `pteron.embeddings.export` made.

        Args:
            folder: with `model.pte` and `tokenizer.json`.
            threads: of a call of the program; None: all.
            max_seq_length: tokens that are kept of a text, special ones included; None: as many as the model
                takes.
            batch_size: texts in a call; the program may take fewer.
            truncate_dim: numbers that are kept of a vector, from the first (Matryoshka models); None: as the
                folder says, or all.
            normalize_embeddings: give vectors of length 1, whatever the model gives.

        Raises FileNotFoundError without a program or tokenizer, ProgramError where a file is damaged,
        ImportError where the package `tokenizers` is missing, InputError for a setting out of range.
        """
        self.folder = EmbeddingFolder(folder)
        most = self.folder.max_seq_length
        self.threads = threads
        self.max_seq_length: int = most if max_seq_length is None else max_seq_length
        self.batch_size = batch_size
        self.truncate_dim = self.folder.truncate_dim if truncate_dim is None else truncate_dim
        self.normalize_embeddings = normalize_embeddings
        special = len(self.folder.tokenizer.encode(""))
        if not is_between(self.max_seq_length, most) or self.max_seq_length <= special:
            raise _out_of_range("max_seq_length", self.max_seq_length, special + 1, most)
        self._check(batch_size, self.truncate_dim)
        self.folder.tokenizer.limit(self.max_seq_length, self.folder.truncation_side)
        self._batches = TokenBatches(self.folder, threads)

    @property
    def dimension(self) -> int:
        """Numbers of a vector."""
        return self.truncate_dim or self.folder.forward.dimension

    @property
    def prompts(self) -> Mapping[str, str]:
        """Texts that the model was trained to have in front, by name."""
        return self.folder.prompts

    def encode(
        self,
        texts: str | Iterable[str],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int | None = None,
        truncate_dim: int | None = None,
        normalize_embeddings: bool | None = None,
    ) -> Vectors:
        """The vector of a text, float32 [dimension], or of each of several, float32 [texts, dimension].

        A text with more than `max_seq_length` tokens is cut there, as sentence-transformers does.

        Args:
            texts: one text, or several in any order: they are put into batches by their lengths.
            prompt_name: the name of a prompt of the model, which is put in front of each text. None: the
                model's default prompt, where it has one.
            prompt: the prompt itself; `""` for none.
            batch_size, truncate_dim, normalize_embeddings: None: those of the embedder.

        Raises InputTypeError for what is no text, InputError for an unknown prompt, a setting out of range,
        or a text of which the tokenizer makes no tokens; what the program raises.
        """
        size = self.batch_size if batch_size is None else batch_size
        kept = self.truncate_dim if truncate_dim is None else truncate_dim
        self._check(size, kept)
        front = self._prompt(prompt_name, prompt)
        if isinstance(texts, str):
            found = self._vectors([texts], front, size)
        else:
            found = self._vectors(listed_texts(texts), front, size)
        if kept is not None:
            found = found[:, :kept]
        if self.normalize_embeddings if normalize_embeddings is None else normalize_embeddings:
            found = unit(found)
        return found[0] if isinstance(texts, str) else found

    def encode_query(self, texts: str | Iterable[str], **settings: Any) -> Vectors:
        """As `encode`, with the prompt "query" where the model has one and none is given."""
        return self._encode_as(("query",), texts, settings)

    def encode_passage(self, texts: str | Iterable[str], **settings: Any) -> Vectors:
        """As `encode`, with the first of the prompts "document", "passage" and "corpus" that the model has
        where none is given.
        """
        return self._encode_as(_PASSAGES, texts, settings)

    def similarity(self, a: Vectors, b: Vectors) -> Vectors:
        """How alike vectors are, float32 [n, m] from [n, dimension] and [m, dimension], by the model's own
        measure (cosine, if it states none); the larger the more alike. A single vector counts as one row.

        Raises InputError where the dimensions differ.
        """
        rows, columns = np.atleast_2d(a), np.atleast_2d(b)
        if rows.ndim != 2 or columns.ndim != 2 or rows.shape[1] != columns.shape[1]:
            raise InputError(
                "the vectors do not fit together",
                expected="[n, dimension] and [m, dimension]",
                got=f"{np.shape(a)} and {np.shape(b)}",
            )
        return SIMILARITIES[self.folder.similarity](rows, columns)

    def __reduce__(self) -> tuple[Any, ...]:
        settings = {
            name: getattr(self, name)
            for name in ("threads", "max_seq_length", "batch_size", "truncate_dim", "normalize_embeddings")
        }
        return _reopened, (self.folder.path, settings)

    def tokens(self, texts: Sequence[str], prompt: str = "") -> list[list[int]]:
        """The tokens of each text behind the prompt, special ones included, at most `max_seq_length`.

        InputError for a text that is no Unicode, or of which the tokenizer makes no tokens.
        """
        try:
            rows = self.folder.tokenizer.encode_batch([prompt + text for text in texts])
        except (TypeError, UnicodeError):
            raise _no_unicode(texts) from None
        for place, row in enumerate(rows):
            if not row:
                raise InputError(
                    f"text {place} has no tokens",
                    hint="this model puts no special tokens around a text: leave empty texts out",
                )
        return rows

    def prompt_tokens(self, prompt: str) -> int:
        """How many tokens at the beginning of a text are the prompt's; 0 where the model pools them too."""
        if not prompt or not self.folder.forward.has_pooled:
            return 0
        row = self.folder.tokenizer.encode(prompt)
        return len(row) - (row[-1:] != [] and row[-1] in self.folder.tokenizer.special.values())

    def embed_tokens(
        self, rows: Sequence[Sequence[int]], excluded: int = 0, batch_size: int | None = None
    ) -> Vectors:
        """The vectors of rows of tokens as `tokens` gives them, float32 [rows, dimension of the model].

        `excluded`: tokens at the beginning of each row that its vector leaves out (`prompt_tokens`).
        """
        return self._batches.embed(rows, excluded, batch_size or self.batch_size)

    def _encode_as(
        self, names: Sequence[str], texts: str | Iterable[str], settings: Mapping[str, Any]
    ) -> Vectors:
        given = dict(settings)
        if given.get("prompt_name") is None and given.get("prompt") is None:
            given["prompt_name"] = next((name for name in names if name in self.prompts), None)
        return self.encode(texts, **given)

    def _vectors(self, texts: list[str], prompt: str, batch_size: int) -> Vectors:
        excluded = self.prompt_tokens(prompt)
        parts = [
            self.embed_tokens(self.tokens(texts[begin : begin + _WINDOW], prompt), excluded, batch_size)
            for begin in range(0, len(texts), _WINDOW)
        ]
        if len(parts) == 1:
            return parts[0]
        return np.concatenate([np.empty((0, self.folder.forward.dimension), np.float32), *parts])

    def _prompt(self, name: str | None, prompt: str | None) -> str:
        if prompt is not None:
            if name is not None:
                raise InputError("give prompt or prompt_name, not both")
            return prompt
        name = self.folder.default_prompt_name if name is None else name
        if name is None:
            return ""
        if name not in self.prompts:
            raise InputError(
                "the model has no prompt of this name",
                expected=f"one of {', '.join(self.prompts)}" if self.prompts else "none: it has no prompts",
                got=repr(name)[:100],
            )
        return self.prompts[name]

    def _check(self, batch_size: int, truncate_dim: int | None) -> None:
        if not is_between(batch_size, 1 << 31):
            raise _out_of_range("batch_size", batch_size, 1)
        dimension = self.folder.forward.dimension
        if truncate_dim is not None and not is_between(truncate_dim, dimension):
            raise _out_of_range("truncate_dim", truncate_dim, 1, dimension)


def _reopened(folder: str, settings: dict[str, Any]) -> Embedder:
    return Embedder(folder, **settings)


def listed_texts(texts: Iterable[str]) -> list[str]:
    """The texts as a list. InputTypeError for what is no text."""
    if isinstance(texts, (bytes, Mapping)) or not isinstance(texts, Iterable):
        raise InputTypeError("these are no texts", expected="a str, or several", got=type(texts).__name__)
    found = list(texts)
    for place, text in enumerate(found):
        if not isinstance(text, str):
            raise InputTypeError(f"text {place} is no str", expected="a str", got=type(text).__name__)
    return found


def _no_unicode(texts: Sequence[str]) -> InputError:
    for place, text in enumerate(texts):
        try:
            text.encode()
        except UnicodeError:
            return InputError(
                f"text {place} has surrogates, which are no characters",
                hint='text.encode(errors="replace").decode() puts question marks in their place',
            )
    return InputError("the prompt has surrogates, which are no characters")


def _out_of_range(name: str, value: Any, least: int, most: int | None = None) -> InputError:
    expected = f"a number from {least}" + (" up" if most is None else f" to {most}")
    return InputError(f"{name} is out of range", expected=expected, got=repr(value)[:100])
