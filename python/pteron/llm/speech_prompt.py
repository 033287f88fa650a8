"""What generation_config.json of a speech model states: languages, tasks, times, tokens that never come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pteron.errors import InputError
from pteron.llm.model_folder import damaged
from pteron.llm.sampling import SamplingParameters, log_probabilities, sample
from pteron.llm.token_rules import TokenRules

_FILE = "generation_config.json"


class SpeechPrompt:
    """The tokens that an answer begins with, and what may follow.

    Attributes:
        languages: codes → tokens; empty for a model of one language. `tasks`: names → tokens.
        no_timestamps: the token that asks for none; None where the model knows no timestamps. Tokens behind
            it are times from 0 on. `start`: the first token.
    """

    def __init__(self, stated: Mapping[str, Any], start: int, eos: frozenset[int], vocabulary: int) -> None:
        """ProgramError where an entry of the file is damaged."""
        self._stated, self._vocabulary, self._eos = stated, vocabulary, min(eos, default=vocabulary)
        self.start = start
        self.languages = {name.strip("<|>"): token for name, token in self._named("lang_to_id").items()}
        self.tasks = self._named("task_to_id")
        if stated.get("is_multilingual") is False:
            self.languages, self.tasks = {}, {}
        self.no_timestamps = self._token("no_timestamps_token_id")
        self._latest = stated.get("max_initial_timestamp_index")
        if self._latest is not None and not isinstance(self._latest, int):
            raise damaged(_FILE, "max_initial_timestamp_index is no number")
        TokenRules(stated, [], vocabulary, 0)

    def tokens(self, language: str | None, task: str, timestamps: bool) -> list[int]:
        """What an answer begins with. `language` is None for a model of one. InputError for what the model
        does not know.
        """
        found = [self.start]
        if language is not None:
            found.append(self.language_token(language))
        if self.tasks:
            if task not in self.tasks:
                raise InputError(
                    f"the model has no task {task!r}", argument="task", expected=", ".join(self.tasks)
                )
            found.append(self.tasks[task])
        elif task != "transcribe":
            raise InputError(f"the model has no task {task!r}: it writes what is said", argument="task")
        if timestamps and self.no_timestamps is None:
            raise InputError("the model knows no timestamps", argument="timestamps", expected="False")
        if not timestamps and self.no_timestamps is not None:
            found.append(self.no_timestamps)
        return found

    def language_token(self, language: str) -> int:
        """The token of a language's code."""
        if not self.languages:
            raise InputError("the model has one language, and takes none", argument="language")
        if language not in self.languages:
            known = sorted(self.languages)
            raise InputError(
                f"the model does not know the language {language!r}",
                argument="language",
                expected=", ".join(known[:120]),
            )
        return self.languages[language]

    @property
    def no_speech(self) -> int | None:
        """The token that is likely behind the first one where nobody speaks; None without timestamps."""
        return None if self.no_timestamps is None else self.no_timestamps - 1

    def detected(self, logits: npt.NDArray[np.float32]) -> str:
        """The most likely language, by the logits behind the first token."""
        return max(self.languages, key=lambda name: float(logits[self.languages[name]]))

    def chooser(self, timestamps: bool, sampling: SamplingParameters, *, is_weighed: bool) -> TokenChooser:
        """Chooses the tokens of one answer; no times where none are asked for. `is_weighed`: keeps their
        log-probabilities.
        """
        first, stated = self._vocabulary, self._stated
        if self.no_timestamps is not None:
            first = self.no_timestamps + 1
        if not timestamps:
            never = [*(stated.get("suppress_tokens") or []), *range(first, self._vocabulary)]
            stated = {**stated, "suppress_tokens": never}
        rules = TokenRules(stated, [], self._vocabulary, 0)
        first_time = first if timestamps else None
        return TokenChooser(rules, first_time, self._eos, self._latest, sampling, is_weighed=is_weighed)

    def _named(self, name: str) -> dict[str, int]:
        found = self._stated.get(name) or {}
        if not isinstance(found, dict):
            raise damaged(_FILE, f"{name} is no object")
        for token in found.values():
            self._checked(token, name)
        return {str(key): token for key, token in found.items()}

    def _token(self, name: str) -> int | None:
        token = self._stated.get(name)
        return None if token is None else self._checked(token, name)

    def _checked(self, token: Any, name: str) -> int:
        if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < self._vocabulary:
            raise damaged(_FILE, f"{name} holds {token!r}, which is no token of the model")
        return token


class TokenChooser:
    """A token of those that may come, with the rules of timestamps: they come in pairs, never go back,
    begin every answer, and come where all of them together are likelier than any text.

    Attributes:
        found: the tokens so far. `logprobs`: of each, among those that might come, where they are asked for.
    """

    def __init__(
        self,
        rules: TokenRules,
        first_time: int | None,
        eos: int,
        latest: int | None,
        sampling: SamplingParameters,
        *,
        is_weighed: bool,
    ) -> None:
        """`first_time`: the token of 0 s; None without timestamps. `latest`: most steps of the first time."""
        self._rules, self._first, self._eos, self._latest = rules, first_time, eos, latest
        self._sampling, self._is_weighed = sampling, is_weighed
        self.found: list[int] = []
        self.logprobs: list[float] = []

    def scores(self, logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """The logits of what may come next; -inf elsewhere."""
        scores = np.where(self._rules.allowed(), logits, -np.inf)
        if self._first is not None:
            self._forbid(scores, self._first)
            self._prefer_times(scores, self._first)
        return scores

    def choose(self, logits: npt.NDArray[np.float32]) -> int:
        """The next token, which counts as taken."""
        scores = self.scores(logits)
        token = sample(scores, self._sampling, len(self.found))
        if self._is_weighed:
            self.logprobs.append(float(log_probabilities(scores)[token]))
        self._rules.accept(token)
        self.found.append(token)
        return token

    def _forbid(self, scores: npt.NDArray[np.float32], first: int) -> None:
        scores[first - 1] = -np.inf
        found = self.found
        is_time = [token >= first for token in found]
        times = [token for token in found if token >= first]
        if is_time[-1:] == [True]:
            if len(found) < 2 or is_time[-2]:
                scores[first:] = -np.inf
            else:
                scores[: self._eos] = -np.inf
        if times:
            is_end = is_time[-2:] == [False, True]
            scores[first : times[-1] + (0 if is_end else 1)] = -np.inf
        if not found:
            scores[:first] = -np.inf
            if self._latest is not None:
                scores[first + self._latest + 1 :] = -np.inf

    @staticmethod
    def _prefer_times(scores: npt.NDArray[np.float32], first: int) -> None:
        largest = scores.max()
        if not np.isfinite(largest):
            return
        times = np.exp(scores[first:].astype(np.float64) - largest).sum()
        if times > np.exp(float(scores[:first].max()) - float(largest)):
            scores[:first] = -np.inf


def cut_at_times(
    tokens: Sequence[int], first: int | None
) -> tuple[list[tuple[int | None, int | None, Sequence[int]]], int | None]:
    """Pieces of an answer as (first step, last step, tokens), None for the window's own; and the step at
    which the next window begins, None where it is the end of this one.
    """
    is_time = [first is not None and token >= first for token in tokens]
    cuts = [at + 1 for at in range(len(tokens) - 1) if is_time[at] and is_time[at + 1]]
    steps = [token - first if first is not None and token >= first else 0 for token in tokens]
    if not cuts:
        last = next((step for step, time in zip(reversed(steps), reversed(is_time), strict=True) if time), 0)
        return [(None, last or None, tokens)], None
    ends_with_one = is_time[-2:] == [False, True]
    if ends_with_one:
        cuts.append(len(tokens))
    pieces: list[tuple[int | None, int | None, Sequence[int]]] = []
    begin = 0
    for cut in cuts:
        pieces.append((steps[begin], steps[cut - 1], tokens[begin:cut]))
        begin = cut
    # Text behind the last pair is heard again, from there on.
    return pieces, None if ends_with_one else steps[begin - 1]
