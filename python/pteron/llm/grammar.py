"""Texts that follow a JSON schema or a grammar, by the package llguidance.

At every place it says which tokens keep to the grammar; the others are never chosen.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from pteron.errors import InputError
from pteron.llm.extras import needed
from pteron.llm.tokenizer import Tokenizer


class Grammars:
    """What a tokenizer needs to follow grammars; made once, since it looks at every token."""

    def __init__(self, tokenizer: Tokenizer, eos: int, vocabulary: int) -> None:
        """`eos`: the token that ends a text. ImportError without llguidance."""
        package = needed("llguidance", "grammar", "text by a schema or grammar")
        self._package: Any = package
        self._vocabulary = vocabulary
        self._tokenizer = package.LLTokenizer(package.TokenizerWrapper(_Tokens(tokenizer, eos)))

    def of_schema(self, schema: Mapping[str, Any] | str) -> GrammarState:
        """The state of a text that follows a JSON schema, without white space between its parts."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        matcher = self._package.LLMatcher
        return self._state(
            "json_schema",
            lambda: matcher.grammar_from_json_schema(text, defaults={"whitespace_flexible": False}),
        )

    def of_lark(self, grammar: str) -> GrammarState:
        """The state of a text that follows a grammar in Lark's notation, as llguidance takes it."""
        return self._state("grammar", lambda: self._package.LLMatcher.grammar_from_lark(grammar))

    def _state(self, argument: str, made: Any) -> GrammarState:
        try:
            matcher = self._package.LLMatcher(self._tokenizer, made(), log_level=0)
        except (ValueError, TypeError) as error:
            raise _refused(argument, str(error)) from None
        if matcher.is_error():
            raise _refused(argument, matcher.get_error())
        return GrammarState(matcher, self._vocabulary)


class GrammarState:
    """How far a text is in its grammar."""

    def __init__(self, matcher: Any, vocabulary: int) -> None:
        self._matcher, self._vocabulary = matcher, vocabulary

    def allowed(self) -> npt.NDArray[np.bool_]:
        """Which tokens may come next. InputError where the grammar cannot be followed any further."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        if self._matcher.is_error():
            raise _refused("grammar", self._matcher.get_error())
        out = np.zeros(self._vocabulary, np.bool_)
        found = np.unpackbits(bits, bitorder="little")[: self._vocabulary]
        out[: found.size] = found
        return out

    def accept(self, token: int) -> None:
        """The token that came."""
        self._matcher.consume_token(token)


class _Tokens:
    """A tokenizer as llguidance looks at it."""

    def __init__(self, tokenizer: Tokenizer, eos: int) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id, self.bos_token_id = eos, None
        self.special_token_ids = sorted(tokenizer.special.values())
        self.tokens = tokenizer.token_bytes()

    def __call__(self, text: bytes | str) -> list[int]:
        known = text.decode(errors="replace") if isinstance(text, bytes) else text
        return self._tokenizer.encode(known, add_special_tokens=False)


def _refused(argument: str, why: str) -> InputError:
    return InputError("the schema or grammar cannot be followed", argument=argument, got=why[:300])
