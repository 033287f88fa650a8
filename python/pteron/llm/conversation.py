"""A conversation: messages, and a cache that keeps what was computed of them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pteron.errors import InputError, MethodBusy
from pteron.llm.cache_file import read_cache, write_cache
from pteron.llm.cache_session import CacheSession
from pteron.llm.chat_template import Message
from pteron.llm.generation_result import GenerationResult
from pteron.llm.pictures import storable
from pteron.llm.token_stream import TokenStream

if TYPE_CHECKING:
    from pteron.llm.generator import Generator


class Conversation:
    """Messages and answers, each computed once. Made by `Generator.conversation` and `Generator.restore`.

    A conversation has a cache of its own; the weights are those of the generator. What fails, and a stream
    that is not read to its end, leaves it as it was. One answer is generated at a time.
    """

    def __init__(
        self,
        generator: Generator,
        session: CacheSession,
        messages: Iterable[Message] = (),
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._generator, self._session = generator, session
        self._messages = [dict(message) for message in messages]
        self._settings = dict(settings or {})
        self._turn = threading.Lock()

    @property
    def messages(self) -> tuple[Message, ...]:
        """What was said so far; copies."""
        return tuple(dict(message) for message in self._messages)

    @property
    def cached_tokens(self) -> int:
        """Tokens in the cache."""
        return len(self._session.tokens)

    def send(self, message: str | Message | Sequence[Message], **settings: Any) -> GenerationResult:
        """Says something and gives the answer; both belong to the conversation from then on.

        `message`: what the user says, a message with another role, or several. `settings`: as in
        `Generator.generate`, over those of the conversation.

        Raises what `Generator.generate` raises; MethodBusy while another answer is generated.
        """
        return self.stream(message, **settings).result

    def stream(self, message: str | Message | Sequence[Message], **settings: Any) -> TokenStream:
        """The answer piece by piece. A cancelled answer counts as said; one that is not read does not."""
        said = _messages(message)
        changes = {**self._settings, **settings}
        tools, variables = changes.pop("tools", None), changes.pop("template_variables", None)
        if not self._turn.acquire(blocking=False):
            raise MethodBusy("the conversation is generating an answer already")

        def done(result: GenerationResult | None) -> None:
            if result is not None:
                self._messages += [*said, {"role": "assistant", "content": result.text}]
            self._turn.release()

        try:
            tokens = self._generator.tokens_of([*self._messages, *said], tools, variables)
        except BaseException:
            done(None)
            raise
        return self._generator.stream_in(self._session, tokens, changes, done)

    def fork(self) -> Conversation:
        """Another conversation that begins as this one does, with a copy of its cache."""
        with self._idle():
            session = self._generator.new_session()
            session.set_state(self._session.tokens, self._session.state())
            return Conversation(self._generator, session, self._messages, self._settings)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes messages and cache to a file, for `Generator.restore`; the file is there whole or not at
        all.
        """
        with self._idle():
            fingerprint = self._generator.folder.fingerprint
            state = self._session.state()
            write_cache(path, fingerprint, self._session.tokens, storable(self._messages), state)

    def _idle(self) -> _Idle:
        return _Idle(self._turn)


class _Idle:
    """Holds the turn of a conversation; MethodBusy where an answer is being generated."""

    def __init__(self, turn: threading.Lock) -> None:
        self._turn = turn

    def __enter__(self) -> None:
        if not self._turn.acquire(blocking=False):
            raise MethodBusy("the conversation is generating an answer already")

    def __exit__(self, *_: object) -> None:
        self._turn.release()


def restore(generator: Generator, path: str | os.PathLike[str], settings: Mapping[str, Any]) -> Conversation:
    """The conversation that `Conversation.save` wrote."""
    tokens, messages, state = read_cache(path, generator.folder.fingerprint)
    vocabulary = generator.folder.signature.vocabulary
    # Rows of images are negative numbers.
    ids = [token for token in tokens if token >= 0 or generator.vision is None]
    if len(tokens) > generator.max_seq_len or any(not 0 <= token < vocabulary for token in ids):
        raise InputError("the file of a conversation has tokens that the model does not know")
    session = generator.new_session()
    if state.keys() != session.state().keys():
        raise InputError("the file of a conversation has other buffers than the program")
    session.set_state(tokens, state)
    return Conversation(generator, session, messages, settings)


def _messages(message: str | Message | Sequence[Message]) -> list[dict[str, Any]]:
    if isinstance(message, str):
        return [{"role": "user", "content": message}]
    found = [message] if isinstance(message, Mapping) else list(message)
    if not found or not all(isinstance(one, Mapping) and "role" in one for one in found):
        raise InputError(
            "a message is a text, or has a role",
            argument="message",
            expected='a text, {"role": ..., "content": ...}, or a list of these',
            got=type(message).__name__,
        )
    return [dict(one) for one in found]
