"""Choosing a token: against transformers' processors, exact where integers promise it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from pteron.errors import InputError, KernelError
from pteron.llm.philox import draw, philox
from pteron.llm.sampling import (
    SamplingParameters,
    TokenCounts,
    distribution,
    integer_weights,
    log_probabilities,
    processed,
    sample,
)

VOCABULARY = 300
PROMPT = [3, 7, 7, 250]


def logits(seed: int = 0, spread: float = 3.0) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Random logits with a few that are equal."""
    out = (np.random.default_rng(seed).standard_normal(VOCABULARY) * spread).astype(np.float32)
    out[50:55] = out[40]
    return out


def transformers_scores(values: Any, text: list[int], **settings: Any) -> torch.Tensor:
    """What transformers' processors make of the logits, in the order of its `generate`."""
    from transformers.generation import logits_process as lp

    kinds: dict[str, Any] = {
        "repetition_penalty": lp.RepetitionPenaltyLogitsProcessor,
        "temperature": lp.TemperatureLogitsWarper,
        "top_k": lp.TopKLogitsWarper,
        "top_p": lp.TopPLogitsWarper,
        "min_p": lp.MinPLogitsWarper,
    }
    scores = torch.from_numpy(values.copy())[None].double()
    for name, kind in kinds.items():
        if name in settings:
            scores = kind(settings[name])(torch.tensor([text]), scores)
    return torch.softmax(scores[0], -1)


CASES = [
    {"temperature": 0.7},
    {"temperature": 1.9},
    {"top_k": 1},
    {"top_k": 20},
    {"top_p": 0.9},
    {"top_p": 0.3},
    {"top_p": 0.0001},
    {"min_p": 0.05},
    {"temperature": 0.8, "top_k": 50, "top_p": 0.8},
    {"temperature": 1.4, "top_k": 30, "top_p": 0.95, "min_p": 0.02},
    {"repetition_penalty": 1.4, "temperature": 0.9, "top_p": 0.9},
    {"repetition_penalty": 0.8},
]


@pytest.mark.parametrize("settings", CASES, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_distributions_are_those_of_transformers(seed: int, settings: dict[str, Any]) -> None:
    values = logits(seed)
    parameters = SamplingParameters(**settings)
    counts = TokenCounts(parameters, PROMPT)
    tokens, weights = distribution(processed(values, parameters, counts), parameters)
    ours = np.zeros(VOCABULARY)
    ours[tokens] = weights / weights.sum()
    theirs = transformers_scores(values, PROMPT, **settings).numpy()
    # Ours drops what is below 2**-40 of the most likely one.
    assert set(tokens.tolist()) == set((theirs > theirs.max() * 2.0**-40).nonzero()[0].tolist())
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-12)


def test_presence_and_frequency_count_the_text_alone() -> None:
    parameters = SamplingParameters(presence_penalty=0.5, frequency_penalty=0.25, logit_bias={9: 2.0})
    counts = TokenCounts(parameters, PROMPT)
    for token in (4, 4, 8):
        counts.add(token)
    values = logits()
    expected = values.astype(np.float64)
    expected[4] -= 0.5 + 2 * 0.25
    expected[8] -= 0.5 + 0.25
    expected[9] += 2.0
    np.testing.assert_array_equal(processed(values, parameters, counts), expected)


def test_draws_follow_the_weights() -> None:
    values = logits(spread=1.0)
    parameters = SamplingParameters(temperature=0.5, top_k=6, seed=7)
    tokens, weights = distribution(values, parameters)
    count = 4000
    found = np.bincount([sample(values, parameters, place) for place in range(count)], minlength=VOCABULARY)
    assert set(found.nonzero()[0].tolist()) <= set(tokens.tolist())
    share = weights / weights.sum()
    np.testing.assert_allclose(found[tokens] / count, share, atol=4 * float(np.sqrt(0.25 / count)))


def test_weights_are_the_same_bits_everywhere() -> None:
    # Kept numbers: another processor, NumPy or C library must give them too.
    exponents = np.array([0.0, -0.1, -0.5, -1.0, -3.25, -10.0, -27.0, -28.0, -1e9])
    kept = [1099511627776, 994879262377, 666887512957, 404487723188, 42632692369, 49917751, 2, 1, 0]
    assert integer_weights(exponents).tolist() == kept
    exact = np.exp(exponents[:6]) * 2.0**40
    np.testing.assert_allclose(integer_weights(exponents[:6]), exact, rtol=1e-8)


def test_the_generator_is_philox() -> None:
    # Known answers of the paper's own library (Random123, kat_vectors).
    assert philox(0, 0) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    ones = 2**64 - 1
    assert philox(ones, 2**128 - 1) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)
    assert {draw(1, place, 3) for place in range(40)} == {0, 1, 2}


def test_kept_tokens_of_a_seed() -> None:
    values = logits(1, spread=2.0)
    parameters = SamplingParameters(temperature=1.0, top_p=0.9, seed=2026)
    assert [sample(values, parameters, place) for place in range(12)] == [
        183,
        120,
        4,
        192,
        273,
        273,
        273,
        273,
        141,
        179,
        183,
        124,
    ]


def test_ties_go_to_the_first_token() -> None:
    values = np.zeros(10, np.float32)
    assert sample(values, SamplingParameters(temperature=0.0), 0) == 0
    tokens, _ = distribution(values, SamplingParameters(top_k=3))
    assert tokens.tolist() == list(range(10)), "ties with the last of the top k stay, as in transformers"
    tokens, _ = distribution(values, SamplingParameters(top_p=0.35))
    assert tokens.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logits_that_are_no_numbers_are_errors(bad: float) -> None:
    values = logits()
    values[17] = bad
    for parameters in (SamplingParameters(), SamplingParameters(temperature=0.0)):
        with pytest.raises(KernelError, match="cannot be sampled"):
            sample(values, parameters, 0)
    nothing = np.full(5, -np.inf, np.float32)
    with pytest.raises(KernelError, match="-inf as the largest"):
        sample(nothing, SamplingParameters(), 0)


def test_log_probabilities() -> None:
    values = logits()
    expected = torch.log_softmax(torch.from_numpy(values).double(), -1).numpy()
    np.testing.assert_allclose(log_probabilities(values), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("top_p", 1.01),
        ("min_p", -1),
        ("repetition_penalty", 0),
        ("top_k", True),
        ("presence_penalty", float("inf")),
        ("seed", 2**64),
    ],
)
def test_settings_out_of_range(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=name):
        SamplingParameters(**{name: value})


@pytest.mark.parametrize("top_p", [0.0, 1e-30])
def test_a_tiny_top_p_leaves_one_token_even_of_equals(top_p: float) -> None:
    parameters = SamplingParameters(top_p=top_p)
    assert {sample(np.ones(40, np.float32), parameters, place) for place in range(20)} == {0}
