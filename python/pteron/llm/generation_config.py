"""Settings of a generation: what the caller says, else generation_config.json, else defaults."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pteron.errors import InputError
from pteron.llm.sampling import SamplingParameters

#: New tokens where neither the caller nor the folder says how many.
DEFAULT_NEW_TOKENS = 256
_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
_PENALTIES = ("presence_penalty", "frequency_penalty")
# A setting that makes sense only where tokens are drawn.
_DRAWING = ("temperature", "top_k", "top_p", "min_p", "seed")


@dataclass(frozen=True, kw_only=True)
class GenerationConfig:
    """Settings by the names that transformers gives them; None: as generation_config.json says, else as here.

    Attributes:
        max_new_tokens: most tokens of the text (256), and never more than the cache takes.
        min_new_tokens: tokens before one may end the text (0).
        do_sample: draw tokens, or take the most likely one. Without it, drawing is what a given temperature,
            top_k, top_p, min_p or seed asks for, then what generation_config.json says, then not.
        temperature, top_k, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty, logit_bias,
            seed: `SamplingParameters`. Without a seed the system chooses one; the result tells which.
        stop_strings: texts that end the text; they are not part of it.
        stop_token_ids: tokens that do, beside those of the model.
        ignore_eos: go on behind tokens that end a text.
        logprobs: log-probabilities of the tokens, with so many most likely others at each place (0: none).
        skip_special_tokens: leave them out of the text (True).
        deadline: seconds until the text ends where it is.
        prompt_lookup_num_tokens: guess so many tokens from earlier places of the text (0), see
            `pteron.llm.speculation`.
        num_assistant_tokens: tokens that the draft guesses at a time, where the generator has one (5); 0:
        none.
        json_schema: the text is JSON that follows it. `grammar`: the text follows a grammar in Lark's
        notation.
            Both need `pip install "pteron[grammar]"`, and end where they are complete.
    """

    max_new_tokens: int | None = None
    min_new_tokens: int = 0
    do_sample: bool | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: Mapping[int, float] | None = None
    seed: int | None = None
    stop_strings: Sequence[str] | str | None = None
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    skip_special_tokens: bool = True
    deadline: float | None = None
    prompt_lookup_num_tokens: int = 0
    num_assistant_tokens: int = 5
    json_schema: Mapping[str, Any] | str | None = None
    grammar: str | None = None

    def with_changes(self, changes: Mapping[str, Any]) -> GenerationConfig:
        """These settings with others. TypeError for a name that is none."""
        unknown = sorted(changes.keys() - {field.name for field in dataclasses.fields(self)})
        if unknown:
            raise TypeError(f"generate() got an unexpected keyword argument {unknown[0]!r}")
        return dataclasses.replace(self, **changes)

    def sampling(self, stated: Mapping[str, Any]) -> SamplingParameters:
        """How tokens are chosen, with what generation_config.json states where the caller says nothing."""
        chosen: dict[str, Any] = {}
        for name in (*_SAMPLING, *_PENALTIES):
            value = getattr(self, name)
            if value is None and name in _SAMPLING:
                value = stated.get(name)
            if value is not None:
                chosen[name] = value
        is_asked = any(getattr(self, name) is not None for name in _DRAWING)
        draws = is_asked or bool(stated.get("do_sample")) if self.do_sample is None else self.do_sample
        if not draws:
            chosen["temperature"] = 0.0
        seed = secrets.randbits(63) if self.seed is None else self.seed
        return SamplingParameters(**chosen, logit_bias=self.logit_bias, seed=seed)

    def new_tokens(self, stated: Mapping[str, Any], room: int) -> int:
        """How many tokens at most, where `room` fit."""
        found = self.max_new_tokens
        if found is None:
            found = stated.get("max_new_tokens")
        if found is None:
            found = DEFAULT_NEW_TOKENS
        if not isinstance(found, int) or isinstance(found, bool) or found < 1:
            raise InputError(
                "a text has at least one new token",
                argument="max_new_tokens",
                expected="a whole number from 1",
                got=repr(found)[:100],
            )
        return min(found, room)

    @property
    def stops(self) -> list[str]:
        """The stop strings as a list."""
        stops = self.stop_strings
        return [stops] if isinstance(stops, str) else list(stops or ())
