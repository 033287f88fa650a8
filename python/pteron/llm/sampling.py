"""From logits to a token: penalties, filters, and a draw that is the same on every machine.

Floats are used where IEEE 754 fixes every bit: single additions, multiplications and divisions of float64, no
sums. Weights of tokens become integers, and sums of integers do not depend on their order. Rules and their
order are those of transformers: penalties, temperature, top-k, top-p, min-p.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pteron.errors import InputError, KernelError
from pteron.llm.philox import draw

#: The weight of the most likely token; less likely ones have less, down to 0 below 2**-_BITS of it.
_BITS = 40
_LOG2_E = 1.4426950408889634
# exp2 on [-0.5, 0.5]: ln(2)**n / n!, an error below 2**-42.
_SERIES = (
    1.0,
    0.6931471805599453,
    0.24022650695910072,
    0.05550410866482158,
    0.009618129107628477,
    0.0013333558146428443,
    0.0001540353039338161,
    1.5252733804059841e-05,
    1.321548679014431e-06,
    1.01780860092397e-07,
    7.054911620801123e-09,
)


@dataclass(frozen=True, kw_only=True)
class SamplingParameters:
    """How a token is chosen.

    Attributes:
        temperature: divides logits; 0: always the most likely token (greedy).
        top_k: so many most likely tokens stay; 0: all. Ties with the last one stay too.
        top_p: the most likely tokens stay whose probabilities add up to it; 1: all.
        min_p: tokens stay with at least this part of the most likely one's probability; 0: all.
        repetition_penalty: divides positive logits of tokens of prompt and text, multiplies negative ones.
        presence_penalty: is subtracted from logits of tokens of the text (not of the prompt).
        frequency_penalty: the same, times their count.
        logit_bias: token → what is added to its logit.
        seed: 64 bits. The same seed, prompt and settings give the same text.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        _check("temperature", self.temperature, 0.0, math.inf)
        _check("top_k", self.top_k, 0, math.inf)
        _check("top_p", self.top_p, 0.0, 1.0)
        _check("min_p", self.min_p, 0.0, 1.0)
        _check("repetition_penalty", self.repetition_penalty, 1e-6, math.inf)
        _check("presence_penalty", self.presence_penalty, -math.inf, math.inf)
        _check("frequency_penalty", self.frequency_penalty, -math.inf, math.inf)
        _check("seed", self.seed, -(2**63), 2**64 - 1)

    @property
    def is_greedy(self) -> bool:
        """Is it always the most likely token?"""
        return self.temperature == 0.0 or self.top_k == 1


def _check(name: str, value: float, low: float, high: float) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not low <= value <= high or math.isinf(value):
        raise InputError(
            "a setting of sampling is out of range",
            argument=name,
            expected=f"a number from {low} to {high}",
            got=repr(value)[:100],
        )


class TokenCounts:
    """Which tokens a prompt and the text behind it have, and how often, kept up to date token by token."""

    def __init__(self, parameters: SamplingParameters, prompt: list[int]) -> None:
        self._seen = dict.fromkeys(prompt) if parameters.repetition_penalty != 1.0 else {}
        self._counts: dict[int, int] = {}
        self._parameters = parameters

    def add(self, token: int) -> None:
        """A token of the text."""
        self._seen[token] = None
        self._counts[token] = self._counts.get(token, 0) + 1

    def apply(self, logits: npt.NDArray[np.float64]) -> None:
        """Changes logits as the penalties say."""
        settings = self._parameters
        if settings.repetition_penalty != 1.0 and self._seen:
            at = _places(self._seen, logits.size)
            chosen = logits[at]
            penalty = settings.repetition_penalty
            logits[at] = np.where(chosen < 0, chosen * penalty, chosen / penalty)
        if (settings.presence_penalty or settings.frequency_penalty) and self._counts:
            at = _places(self._counts, logits.size)
            counts = np.array([self._counts[token] for token in at.tolist()], np.float64)
            logits[at] -= settings.presence_penalty
            logits[at] -= settings.frequency_penalty * counts

    @property
    def is_needed(self) -> bool:
        """Does any penalty change anything?"""
        settings = self._parameters
        has_counts = bool(settings.presence_penalty or settings.frequency_penalty) and bool(self._counts)
        return has_counts or (settings.repetition_penalty != 1.0 and bool(self._seen))


def _places(tokens: Mapping[int, Any], size: int) -> npt.NDArray[np.int64]:
    return np.array([token for token in tokens if 0 <= token < size], np.int64)


def processed(
    logits: npt.NDArray[np.float32],
    parameters: SamplingParameters,
    counts: TokenCounts,
    allowed: npt.NDArray[np.bool_] | None = None,
) -> npt.NDArray[np.floating[Any]]:
    """The logits behind bias, penalties and the mask of a grammar; the array itself where none applies.

    KernelError where the model gave NaN, an infinity, or nothing that is allowed.
    """
    out: npt.NDArray[np.floating[Any]] = logits
    if counts.is_needed or parameters.logit_bias:
        wide = logits.astype(np.float64)
        counts.apply(wide)
        for token, bias in (parameters.logit_bias or {}).items():
            if 0 <= token < wide.size:
                wide[token] += bias
        out = wide
    if allowed is not None:
        out = np.where(allowed, out, -np.inf)
    return out


def sample(logits: npt.NDArray[np.floating[Any]], parameters: SamplingParameters, place: int) -> int:
    """The token for place number `place` of a text."""
    best = int(logits.argmax())
    most = float(logits[best])
    if not math.isfinite(most):
        raise KernelError(
            "the logits of the model cannot be sampled",
            expected="finite numbers",
            got=f"{most} as the largest",
        )
    if parameters.is_greedy:
        return best
    tokens, weights = distribution(logits, parameters)
    if tokens.size == 1:
        return int(tokens[0])
    sums = weights.cumsum()
    drawn = draw(parameters.seed & 2**64 - 1, place, int(sums[-1]))
    return int(tokens[int(sums.searchsorted(drawn, side="right"))])


def distribution(
    logits: npt.NDArray[np.floating[Any]], parameters: SamplingParameters
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Tokens that the filters leave and their weights as integers, the most likely ones first where top-k or
    top-p chose them, else in the order of tokens.
    """
    floor = float(logits.max()) - parameters.temperature * (_BITS + 1) / _LOG2_E
    if 0 < parameters.top_k < logits.size:
        kth = np.partition(logits, logits.size - parameters.top_k)[logits.size - parameters.top_k]
        floor = max(floor, float(kth))
    if parameters.min_p > 0.0 and parameters.top_p == 1.0:
        # A little lower than the filter below, which decides.
        floor = max(floor, float(logits.max()) + parameters.temperature * (math.log(parameters.min_p) - 1e-3))
    # In float64: `floor` as a float32 could leave out the token that it is made of.
    tokens = (logits >= floor).nonzero()[0] if logits.dtype == np.float64 else _at_least(logits, floor)
    chosen = logits[tokens].astype(np.float64)
    weights = integer_weights((chosen - chosen.max()) / parameters.temperature)
    if parameters.top_p < 1.0:
        total = int(weights.sum())
        # At least one: the most likely token always stays.
        share = max(1, round(parameters.top_p * 2**53) * total >> 53)
        # All tokens of this weight or less together have no more than the rest, so none of them stays.
        is_possible = weights > (total - share) // weights.size
        tokens, weights = tokens[is_possible], weights[is_possible]
        order = (-weights).argsort(kind="stable")
        tokens, weights = tokens[order], weights[order]
        before = weights.cumsum() - weights
        kept = max(1, int(before.searchsorted(share, side="left")))
        tokens, weights = tokens[:kept], weights[:kept]
    if parameters.min_p > 0.0:
        is_kept = weights >= round(parameters.min_p * (1 << _BITS))
        tokens, weights = tokens[is_kept], weights[is_kept]
    return tokens, weights


def _at_least(logits: npt.NDArray[np.floating[Any]], floor: float) -> npt.NDArray[np.int64]:
    """Where logits reach `floor`, compared in their own element type, rounded down."""
    # A floor below all numbers of the type becomes -inf.
    with np.errstate(over="ignore"):
        rounded = logits.dtype.type(floor)
    if float(rounded) > floor:
        rounded = np.nextafter(rounded, logits.dtype.type(-np.inf))
    return (logits >= rounded).nonzero()[0]


def integer_weights(exponents: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """exp of numbers that are at most 0, in units of 2**-40, the same bits on every machine."""
    # Farther down everything is 0; this keeps shifts within a word.
    scaled = np.maximum(exponents * _LOG2_E, -(_BITS + 2.0))
    whole = np.rint(scaled)
    part = scaled - whole
    value = np.full_like(part, _SERIES[-1])
    for factor in _SERIES[-2::-1]:
        value *= part
        value += factor
    weights: npt.NDArray[np.int64] = np.rint(np.ldexp(value, whole.astype(np.int32) + _BITS)).astype(np.int64)
    return weights


def log_probabilities(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Natural logarithms of the probabilities that the model itself gives, before any setting."""
    wide = logits.astype(np.float64)
    wide -= wide.max()
    return wide - math.log(float(np.exp(wide).sum()))
