"""`executorch.extension.llm.runner` over `pteron.llm.Generator`, without torch: `TextLLMRunner`,
`GenerationConfig`, `Stats`.

Names, arguments, defaults and the meaning of settings are ExecuTorch's. What differs: errors say what is
wrong (they are RuntimeErrors too); a piece of text has whole characters; text is printed only where no
callback takes it; the first token is drawn as the others are. Runners of images and sound are not here.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from pteron.errors import InputError
from pteron.llm import Generator, TokenStream
from pteron.llm.generation_result import GenerationResult

__all__ = ["GenerationConfig", "Stats", "TextLLMRunner"]

#: Of ExecuTorch's sampler, which has no setting for it.
_TOP_P = 0.9
_WRITTEN_TIMES = (
    "model_load_start_ms",
    "model_load_end_ms",
    "inference_start_ms",
    "inference_end_ms",
    "prompt_eval_end_ms",
    "first_token_ms",
    "model_execution_start_ms",
    "model_execution_end_ms",
    "aggregate_sampling_time_ms",
    "aggregate_model_execution_time_ms",
)


@dataclass(kw_only=True)
class GenerationConfig:
    """Settings of a generation.

    Attributes:
        echo: give the prompt to the callback before the text.
        max_new_tokens: most tokens of the text; -1: as many as fit. `seq_len`: most tokens of prompt and
            text; -1: as many as the cache holds.
        warming: print nothing.
        temperature: 0 takes the most likely token.
        num_bos, num_eos: tokens that begin and end a text, put before and behind the prompt.
    """

    echo: bool = True
    max_new_tokens: int = -1
    warming: bool = False
    seq_len: int = -1
    temperature: float = 0.8
    num_bos: int = 0
    num_eos: int = 0

    def resolve_max_new_tokens(self, max_context_len: int, num_tokens_occupied: int) -> int:
        """Most tokens of a text behind `num_tokens_occupied` in a cache of `max_context_len`; at least 0."""
        length = max_context_len if self.seq_len == -1 else min(self.seq_len, max_context_len)
        room = length - num_tokens_occupied
        return max(0, room if self.max_new_tokens == -1 else min(room, self.max_new_tokens))


@dataclass
class Stats:
    """What a generation took. Times are milliseconds of the system's clock, sums are milliseconds."""

    SCALING_FACTOR_UNITS_PER_SECOND: ClassVar[int] = 1000

    model_load_start_ms: int = 0
    model_load_end_ms: int = 0
    inference_start_ms: int = 0
    token_encode_end_ms: int = 0
    model_execution_start_ms: int = 0
    model_execution_end_ms: int = 0
    prompt_eval_end_ms: int = 0
    first_token_ms: int = 0
    inference_end_ms: int = 0
    aggregate_sampling_time_ms: int = 0
    aggregate_model_execution_time_ms: int = 0
    num_prompt_tokens: int = 0
    num_generated_tokens: int = 0

    def __post_init__(self) -> None:
        self._sampling_begin = 0

    def on_sampling_begin(self) -> None:
        """A token is being chosen from now on."""
        self._sampling_begin = _now_ms()

    def on_sampling_end(self) -> None:
        """Adds the time since `on_sampling_begin`."""
        self.aggregate_sampling_time_ms += _now_ms() - self._sampling_begin
        self._sampling_begin = 0

    def reset(self, all_stats: bool = False) -> None:
        """Zeros, but for the times of loading unless `all_stats`."""
        begin, end = self.model_load_start_ms, self.model_load_end_ms
        self.__init__() if all_stats else self.__init__(begin, end)  # type: ignore[misc]

    def to_json_string(self) -> str:
        """The numbers as JSON, by the names that ExecuTorch's tools read."""
        numbers: dict[str, float] = {
            "prompt_tokens": self.num_prompt_tokens,
            "generated_tokens": self.num_generated_tokens,
            "SCALING_FACTOR_UNITS_PER_SECOND": self.SCALING_FACTOR_UNITS_PER_SECOND,
        }
        numbers |= {name: getattr(self, name) for name in _WRITTEN_TIMES}
        # A rate is there where time has passed.
        if self.prompt_eval_end_ms > self.inference_start_ms:
            took = self.prompt_eval_end_ms - self.inference_start_ms
            numbers["prefill_token_per_sec"] = 1000 * self.num_prompt_tokens / took
        if self.inference_end_ms > self.prompt_eval_end_ms:
            took = self.inference_end_ms - self.prompt_eval_end_ms
            numbers["decode_token_per_sec"] = 1000 * self.num_generated_tokens / took
        return json.dumps(numbers, separators=(",", ":"))


class TextLLMRunner:
    """A language model of a program and a tokenizer's file, with one cache that goes on from call to call.

    What `prefill` and `generate` put into the cache stays there until `reset`; the last token of a text is
    not in it. One thread uses a runner; `stop` may come from any.
    """

    def __init__(
        self,
        model_path: str | os.PathLike[str],
        tokenizer_path: str | os.PathLike[str],
        data_path: str | os.PathLike[str] | None = None,
    ) -> None:
        """Opens a program, which states the length of its cache by `get_max_seq_len`, with its data file.

        Raises RuntimeError where a file is missing, damaged, or does not fit the others.
        """
        self._stats = Stats(model_load_start_ms=_now_ms())
        data = [] if data_path is None else [data_path]
        try:
            self._generator = Generator(model_path, tokenizer=tokenizer_path, data=data)
            self._session = self._generator.new_session()
        except (OSError, ImportError) as error:
            raise RuntimeError(f"TextLLMRunner: {error}") from error
        self._stats.model_load_end_ms = _now_ms()
        self._stream: TokenStream | None = None
        self._model_path = os.fspath(model_path)

    def __repr__(self) -> str:
        return f"<TextLLMRunner {self._model_path!r}>"

    def generate(
        self,
        prompt: str,
        config: GenerationConfig,
        token_callback: Callable[[str], Any] | None = None,
        stats_callback: Callable[[Stats], Any] | None = None,
    ) -> None:
        """The text behind what the cache holds and `prompt`, piece by piece to `token_callback`.

        Without that, it is printed. `stats_callback` gets the figures at the end.

        Raises RuntimeError (InputError where the prompt is the reason); the cache holds what it held, then.
        """
        self._stats.reset()
        self._stats.inference_start_ms = _now_ms()
        give = token_callback or (_ignored if config.warming else _printed)
        tokens = self._tokens(prompt, config)
        self._stats.token_encode_end_ms = _now_ms()
        self._stats.num_prompt_tokens = len(tokens) - len(self._session.tokens)
        room = config.resolve_max_new_tokens(self._generator.max_seq_len, len(tokens))
        if room < 1:
            raise InputError(
                "there is no room for a text behind the prompt",
                expected="max_new_tokens and seq_len of at least one token more than the cache has",
                got=f"{len(tokens)} tokens in a cache of {self._generator.max_seq_len}",
                hint="reset the runner, or shorten the prompt",
            )
        if config.echo:
            give(prompt)
        drawn = {"temperature": config.temperature, "top_p": _TOP_P}
        settings = {"do_sample": False} if config.temperature == 0 else drawn
        changes = {**settings, "max_new_tokens": room, "skip_special_tokens": False}
        stream = self._generator.stream_in(self._session, tokens, changes, lambda _: None)
        self._stream = stream
        try:
            with stream:
                for piece in stream:
                    give(piece)
        finally:
            self._stream = None
        self._note(stream.result)
        if stats_callback is not None:
            stats_callback(self._stats)

    def prefill(self, prompt: str, config: GenerationConfig) -> None:
        """Puts a prompt into the cache, such as the messages of a conversation so far.

        Raises RuntimeError (InputError where the prompt is the reason).
        """
        self._session.prefill(self._tokens(prompt, config))

    def stop(self) -> None:
        """Ends the text that is being generated before its next token."""
        if self._stream is not None:
            self._stream.cancel()

    def reset(self) -> None:
        """Empties the cache."""
        self._session.rewind(0)
        self._stats.reset()

    def get_vocab_size(self) -> int:
        """Tokens that the model has logits of."""
        return self._generator.folder.signature.vocabulary

    def _tokens(self, prompt: str, config: GenerationConfig) -> list[int]:
        """The cache's tokens and those of the prompt, checked."""
        new = self._generator.tokenizer.encode(prompt, add_special_tokens=False)
        begin, ends = self._generator.bos_id, sorted(self._generator.eos_ids)
        for count, name, found in ((config.num_bos, "begins", [begin]), (config.num_eos, "ends", ends)):
            if count > 0 and found in ([], [None]):
                raise InputError(f"neither the program nor the tokenizer states a token that {name} a text")
        if config.num_bos > 0 and begin is not None:
            new = [begin] * config.num_bos + new
        if config.num_eos > 0:
            new = new + ends[:1] * config.num_eos
        return self._generator.tokens_of([*self._session.tokens, *new])

    def _note(self, result: GenerationResult) -> None:
        stats, timings = self._stats, result.timings
        begin = stats.token_encode_end_ms
        sampling = round(timings.sampling * 1000)
        stats.prompt_eval_end_ms = begin + round(timings.prefill * 1000)
        stats.first_token_ms = begin + round(timings.first_token * 1000)
        stats.inference_end_ms = _now_ms()
        stats.model_execution_start_ms, stats.model_execution_end_ms = begin, stats.inference_end_ms
        stats.aggregate_sampling_time_ms = sampling
        took = round((timings.first_token + timings.decode) * 1000)
        stats.aggregate_model_execution_time_ms = max(0, took - sampling)
        # ExecuTorch counts the tokens behind the first one.
        stats.num_generated_tokens = timings.decoded


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _printed(piece: str) -> None:
    print(piece, end="", flush=True)


def _ignored(_piece: str) -> None:
    return None
