"""What generation_config.json forbids and demands token by token, as transformers does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pteron.llm.model_folder import damaged

_FILE = "generation_config.json"


class TokenRules:
    """`bad_words_ids`, `suppress_tokens`, `begin_suppress_tokens`, `no_repeat_ngram_size`, and the forced
    first and last token. It stands where a grammar may stand.
    """

    def __init__(
        self, stated: Mapping[str, Any], prompt: Sequence[int], vocabulary: int, most_tokens: int
    ) -> None:
        """`stated`: the file's object. `prompt`: what the decoder begins with. ProgramError for an entry that
        is no token.
        """
        self._vocabulary, self._most = vocabulary, most_tokens
        self._history, self._begin = list(prompt), len(prompt)
        self._never = self.tokens(stated, "suppress_tokens")
        self._not_first = self.tokens(stated, "begin_suppress_tokens")
        self._first = self.tokens(stated, "forced_bos_token_id")
        self._last = self.tokens(stated, "forced_eos_token_id")
        words = stated.get("bad_words_ids") or []
        if not isinstance(words, list) or not all(isinstance(word, list) and word for word in words):
            raise damaged(_FILE, "bad_words_ids is no list of lists")
        self._words = [self.checked(word, "bad_words_ids") for word in words]
        size = stated.get("no_repeat_ngram_size") or 0
        if not isinstance(size, int) or size < 0:
            raise damaged(_FILE, "no_repeat_ngram_size is no number from 0 up")
        self._size = size

    def tokens(self, stated: Mapping[str, Any], name: str) -> list[int]:
        """The tokens of an entry; none where it is missing or null."""
        value = stated.get(name)
        return self.checked(([] if value is None else value if isinstance(value, list) else [value]), name)

    def checked(self, tokens: list[Any], name: str) -> list[int]:
        """The tokens that the model has; ProgramError for what is no number."""
        if not all(isinstance(token, int) and not isinstance(token, bool) for token in tokens):
            raise damaged(_FILE, f"{name} has entries that are no tokens")
        return [token for token in tokens if 0 <= token < self._vocabulary]

    def allowed(self) -> npt.NDArray[np.bool_]:
        """Which tokens may come next."""
        place = len(self._history) - self._begin
        forced = self._first if place == 0 and self._first else self._last if place + 1 == self._most else []
        if forced:
            found = np.zeros(self._vocabulary, np.bool_)
            found[forced] = True
            return found
        found = np.ones(self._vocabulary, np.bool_)
        found[self._never] = False
        if place == 0:
            found[self._not_first] = False
        for word in self._words:
            if self._history[len(self._history) - len(word) + 1 :] == word[:-1]:
                found[word[-1]] = False
        found[self._repeated()] = False
        return found

    def accept(self, token: int) -> None:
        """The token that came."""
        self._history.append(token)

    def _repeated(self) -> list[int]:
        """Tokens that would end an n-gram that was there before."""
        size, history = self._size, self._history
        if size == 0 or len(history) + 1 < size:
            return []
        begin = history[len(history) - size + 1 :]
        ends = range(size - 1, len(history))
        return [history[end] for end in ends if history[end - size + 1 : end] == begin]
