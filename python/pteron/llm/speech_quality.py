"""Is an answer of a speech model worth keeping? Thresholds, and the temperatures that are tried in turn.

Names and rules are those of transformers' `generate` for Whisper: an answer that repeats itself or that the
model finds unlikely is written again at the next temperature; a window that is unlikely and in which nobody
seems to speak is left out.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pteron.errors import InputError

#: Settings by transformers' names; generation_config.json may state the thresholds.
NAMES = ("temperature", "compression_ratio_threshold", "logprob_threshold", "no_speech_threshold")


@dataclass(frozen=True)
class SpeechQuality:
    """What is asked of an answer.

    Attributes:
        temperatures: tried in turn until an answer is good enough; 0 takes the most likely tokens.
        compression_ratio: bytes of the tokens by their bytes behind zlib, at most. `logprob`: natural
            logarithm of the tokens' probabilities, their mean, at least. `no_speech`: the probability of no
            speech from which an unlikely window is left out. None: not asked.
    """

    temperatures: tuple[float, ...] = (0.0,)
    compression_ratio: float | None = None
    logprob: float | None = None
    no_speech: float | None = None

    def is_good(self, tokens: Sequence[int], logprobs: Sequence[float], vocabulary: int) -> bool:
        """Is an answer good enough? `tokens` with the one that ends them, `logprobs` of each."""
        most = self.compression_ratio
        if most is not None and compression_ratio(tokens, vocabulary) > most:
            return False
        return self.logprob is None or mean(logprobs) >= self.logprob

    def is_silence(self, logprobs: Sequence[float], no_speech: float) -> bool:
        """Is nothing said in a window, where `no_speech` is the probability of that?"""
        if self.no_speech is None or self.logprob is None:
            return False
        return mean(logprobs) < self.logprob and no_speech > self.no_speech


def quality(given: Mapping[str, Any], stated: Mapping[str, Any]) -> SpeechQuality:
    """The settings `given` by their names; thresholds else as generation_config.json states, else none.

    InputError for what is no number, and for a threshold of silence without one of probability.
    """
    found: dict[str, Any] = {
        name: stated.get(name) if given.get(name) is None else given[name] for name in NAMES[1:]
    }
    temperature = given.get("temperature")
    steps = (
        temperature
        if isinstance(temperature, (list, tuple))
        else (0.0 if temperature is None else temperature,)
    )
    for step in steps:
        _check("temperature", step, 0.0)
    for name in NAMES[1:]:
        if found[name] is not None:
            _check(name, found[name], -math.inf)
    if not steps:
        raise InputError("a transcript has at least one temperature", argument="temperature")
    if found["no_speech_threshold"] is not None and found["logprob_threshold"] is None:
        raise InputError(
            "a threshold of silence needs one of probability",
            argument="no_speech_threshold",
            expected="logprob_threshold beside it",
        )
    thresholds = [None if found[name] is None else float(found[name]) for name in NAMES[1:]]
    return SpeechQuality(tuple(float(step) for step in steps), *thresholds)


def compression_ratio(tokens: Sequence[int], vocabulary: int) -> float:
    """Bytes of the tokens by their bytes behind zlib: what repeats itself is compressed well."""
    width = int(math.log2(vocabulary) / 8) + 1
    content = b"".join(token.to_bytes(width, "little") for token in tokens)
    return len(content) / len(zlib.compress(content))


def mean(logprobs: Sequence[float]) -> float:
    """Their mean; 0 of none."""
    return math.fsum(logprobs) / len(logprobs) if logprobs else 0.0


def probability(logits: npt.NDArray[np.float32], token: int) -> float:
    """The probability of a token."""
    weights = np.exp(logits.astype(np.float64) - float(logits.max()))
    return float(weights[token] / weights.sum())


def _check(name: str, value: Any, least: float) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value < least:
        raise InputError(
            "a setting of a transcript is out of range",
            argument=name,
            expected="a number" if least < 0 else f"a number from {least:g}",
            got=repr(value)[:100],
        )
