"""`Text2TextGenerator`: a folder with an encoder-decoder of texts, such as T5, BART or Marian."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pteron.errors import InputError
from pteron.llm.cache_session import SessionPool
from pteron.llm.encoder_folder import EncoderDecoderFolder, SourceSession
from pteron.llm.generation_config import GenerationConfig
from pteron.llm.generation_result import GenerationResult
from pteron.llm.token_rules import TokenRules
from pteron.llm.token_stream import Plan, TokenStream
from pteron.llm.tokenizer import Tokenizer, open_tokenizer_for

#: Settings that need another kind of model.
_REFUSED = ("json_schema", "grammar")


class Text2TextGenerator:
    """Translates, summarises or answers: a source text in, a text out, without torch and transformers.

    Rules of generation_config.json hold (`TokenRules`); beams are not searched, whatever it says.

    Attributes:
        folder: the program and what its files state. `tokenizer`: of the folder.
        config: settings of calls that say nothing else.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        threads: int | None = None,
        config: GenerationConfig | None = None,
    ) -> None:
        """Opens a folder that `pteron.llm.export` made. `threads`: of a call (default: all).

        Raises FileNotFoundError without a program or tokenizer, ProgramError where a file is damaged,
        ImportError where the tokenizer's package is missing, InputError where the folder holds another kind
        of model or the tokenizer is another model's.
        """
        self.folder = EncoderDecoderFolder(folder, is_text=True)
        self.tokenizer: Tokenizer = open_tokenizer_for(self.folder)
        self.config = config or GenerationConfig()
        self._start = self.folder.start_token
        self._pool = SessionPool(lambda: SourceSession(self.folder, threads, self.folder.signature.chunk), 1)

    @property
    def max_source_len(self) -> int:
        """Tokens of a source at most."""
        return self.folder.source_shape[1]

    def generate(
        self, source: str | Sequence[int], *, max_new_tokens: int | None = None, **settings: Any
    ) -> GenerationResult:
        """The answer to a source, a text or its tokens. `settings`: those of `GenerationConfig`, by name.

        Raises InputError where the source is empty, longer than `max_source_len` or has tokens that the model
        does not know, or a setting is out of range; what the program raises. The next call works.
        """
        return self.stream(source, max_new_tokens=max_new_tokens, **settings).result

    def stream(
        self, source: str | Sequence[int], *, max_new_tokens: int | None = None, **settings: Any
    ) -> TokenStream:
        """The same piece by piece, as an iterator or asynchronous iterator; `cancel` ends it."""
        changes = settings if max_new_tokens is None else {"max_new_tokens": max_new_tokens, **settings}
        tokens = self._tokens(source)
        plan = self._plan(self.config.with_changes(changes))
        session = self._pool.take([])
        assert isinstance(session, SourceSession)
        session.set_source(np.array([tokens], np.int64))
        return TokenStream(session, plan, lambda _: self._pool.give(session))

    def _tokens(self, source: str | Sequence[int]) -> list[int]:
        tokens = self.tokenizer.encode(source) if isinstance(source, str) else list(source)
        if not 0 < len(tokens) <= self.max_source_len:
            raise InputError(
                "the source does not fit into the model" if tokens else "the source has no tokens",
                expected=f"1 to {self.max_source_len} tokens",
                got=f"{len(tokens)} tokens",
                hint="give it in parts, or export the model with a larger max_source_len" if tokens else None,
            )
        vocabulary = self.folder.signature.vocabulary
        for token in tokens:
            if not isinstance(token, int) or not 0 <= token < vocabulary:
                raise InputError(
                    "the source has a token that the model does not know",
                    expected=f"numbers from 0 to {vocabulary - 1}",
                    got=repr(token)[:100],
                )
        return tokens

    def _plan(self, config: GenerationConfig) -> Plan:
        refused = [name for name in _REFUSED if getattr(config, name) is not None]
        if refused or config.prompt_lookup_num_tokens:
            raise InputError(
                f"an encoder-decoder does not take the setting {(refused or ['prompt_lookup_num_tokens'])[0]}"
            )
        stated = self.folder.generation_config
        most = config.new_tokens(stated, self.folder.max_seq_len)
        eos = frozenset() if config.ignore_eos else self.folder.eos_ids
        return Plan(
            prompt=[self._start],
            sampling=config.sampling(stated),
            most_tokens=most,
            fewest_tokens=config.min_new_tokens or _fewest(stated),
            eos=eos | frozenset(config.stop_token_ids),
            stops=config.stops,
            logprobs=config.logprobs,
            skip_special_tokens=config.skip_special_tokens,
            deadline=config.deadline,
            tokenizer=self.tokenizer,
            grammar=TokenRules(stated, [self._start], self.folder.signature.vocabulary, most),
        )


def _fewest(stated: Mapping[str, Any]) -> int:
    """New tokens that the file asks for; its `min_length` counts the first token of the decoder."""
    fewest = stated.get("min_new_tokens")
    if fewest is None:
        fewest = (stated.get("min_length") or 1) - 1
    return fewest if isinstance(fewest, int) else 0
