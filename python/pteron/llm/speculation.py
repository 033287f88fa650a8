"""Several tokens in one call: guessed cheaply, then checked by the model in one call over all of them.

Every token is still chosen from the model's own logits, with the draw of its place, so the text is the one
that comes without guesses, up to the rounding of logits: the kernels for one row and for several add in
another order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from pteron.llm.cache_session import CacheSession, Remaining
from pteron.llm.pictures import ids_of


class Proposer(Protocol):
    """Guesses what follows."""

    def propose(self, tokens: Sequence[int], most: int) -> list[int]:
        """At most `most` tokens that may follow `tokens`; none where there is no guess."""


class PromptLookup:
    """Guesses what followed when the last few tokens came before: good where a text quotes its prompt."""

    def __init__(self, most_tokens: int, longest: int = 3, window: int = 4096) -> None:
        self._most, self._longest, self._window = most_tokens, longest, window

    def propose(self, tokens: Sequence[int], most: int) -> list[int]:
        """As `Proposer.propose`, by the latest place where the longest end of the text stands already."""
        known = np.asarray(tokens[-self._window :], np.int64)
        for length in range(min(self._longest, known.size - 1), 0, -1):
            windows = np.lib.stride_tricks.sliding_window_view(known[:-1], length)
            places = (windows == known[-length:]).all(axis=1).nonzero()[0]
            if places.size:
                begin = int(places[-1]) + length
                found: list[int] = known[begin : begin + min(most, self._most)].tolist()
                return found
        return []


class Decoder:
    """Logits behind each token of a text, with the guesses of a proposer where there is one."""

    def __init__(self, session: CacheSession, proposer: Proposer | None, most_tokens: int) -> None:
        self._session, self._proposer, self._most_tokens = session, proposer, most_tokens
        self._tokens: list[int] = []
        # Guesses that the model has seen, each with the logits behind it.
        self._ahead: list[tuple[int, npt.NDArray[np.float32]]] = []
        self.proposed = self.accepted = self.reused = 0

    def first(self, prompt: Sequence[int], remaining: Remaining) -> npt.NDArray[np.float32]:
        """The logits behind a prompt."""
        logits, self.reused = self._session.prefill(prompt, remaining)
        self._tokens = ids_of(prompt)
        return logits

    def after(self, token: int, remaining: Remaining) -> npt.NDArray[np.float32]:
        """The logits behind the text with one more token."""
        if self._ahead and self._ahead[0][0] == token:
            self._tokens.append(token)
            self.accepted += 1
            return self._ahead.pop(0)[1]
        self.drop_guesses()
        guesses = self._guesses(token)
        if not guesses:
            logits = self._session.extend([token], remaining)
            self._tokens.append(token)
            return logits
        rows = self._session.extend_all([token, *guesses], remaining)
        self._tokens.append(token)
        self.proposed += len(guesses)
        self._ahead = list(zip(guesses, rows[1:], strict=True))
        first: npt.NDArray[np.float32] = rows[0]
        return first

    def drop_guesses(self) -> None:
        """The cache holds the tokens of the text and nothing else."""
        if self._ahead:
            self._session.rewind(len(self._tokens))
            self._ahead = []

    def _guesses(self, token: int) -> list[int]:
        if self._proposer is None:
            return []
        room = min(self._most_tokens - 1, self._session.room - 1)
        return self._proposer.propose([*self._tokens, token], room) if room > 0 else []


class DraftModel:
    """Guesses by a smaller model with the same tokenizer: its most likely tokens."""

    def __init__(self, session: CacheSession, most_tokens: int, vocabulary: int) -> None:
        """`vocabulary`: tokens of the model that checks; the draft may have logits for more."""
        self._session, self._most, self._vocabulary = session, most_tokens, vocabulary

    def propose(self, tokens: Sequence[int], most: int) -> list[int]:
        """As `Proposer.propose`; none where the draft's cache is full."""
        found: list[int] = []
        count = min(most, self._most, self._session.capacity - len(tokens))
        if count < 1:
            return found
        logits, _ = self._session.prefill(tokens)
        while True:
            found.append(int(logits[: self._vocabulary].argmax()))
            if len(found) == count:
                return found
            logits = self._session.extend(found[-1:])
