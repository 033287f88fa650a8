"""What a generation gives."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TokenLogprob:
    """Log-probability of a token of the text, as the model gives it, before temperature, filters and
    penalties.

    Attributes:
        token: its number. `logprob`: natural logarithm. `top`: the most likely tokens at its place with
            theirs.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Timings:
    """Seconds of a generation.

    Attributes:
        prefill: until the logits behind the prompt were there.
        first_token: until the first token was chosen.
        decode: from the first token to the end. `sampling`: the part of all that choosing tokens took.
        decoded: tokens behind the first one.
    """

    prefill: float
    first_token: float
    decode: float
    sampling: float
    decoded: int

    @property
    def tokens_per_second(self) -> float:
        """Tokens behind the first one by the time that they took; 0 where there is none."""
        return self.decoded / self.decode if self.decoded and self.decode > 0 else 0.0


@dataclass(frozen=True)
class GenerationResult:
    """A text with what is known about it.

    Attributes:
        text: the new text, without what ended it.
        tokens: the new tokens, with the one that ended the text where one did.
        finish_reason: "stop" (a token or text that ends it), "length" (as many tokens as asked for, or the
            cache is full), "cancelled" or "deadline".
        stop: the stop string or token that ended it; None otherwise.
        prompt_tokens: tokens of the prompt. `reused_tokens`: those of them that were in the cache before.
        seed: of the draws. `logprobs`: one for each token where asked for. `timings`: seconds.
        proposed_tokens, accepted_tokens: of speculative decoding.
    """

    text: str
    tokens: tuple[int, ...]
    finish_reason: str
    stop: str | int | None
    prompt_tokens: int
    reused_tokens: int
    seed: int
    logprobs: tuple[TokenLogprob, ...] | None
    timings: Timings
    proposed_tokens: int = 0
    accepted_tokens: int = 0

    def __str__(self) -> str:
        return self.text
