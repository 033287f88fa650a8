"""The loop: a token, its text, the next call. `TokenStream` is what `Generator.stream` gives."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pteron.errors import Cancelled, DeadlineExceeded
from pteron.llm.cache_session import CacheSession
from pteron.llm.generation_result import GenerationResult, Timings, TokenLogprob
from pteron.llm.pictures import ids_of
from pteron.llm.sampling import SamplingParameters, TokenCounts, log_probabilities, processed, sample
from pteron.llm.speculation import Decoder, Proposer
from pteron.llm.stop_strings import StopStrings
from pteron.llm.tokenizer import TextStream, Tokenizer


class Grammar(Protocol):
    """What a text may go on with."""

    def allowed(self) -> npt.NDArray[np.bool_] | None:
        """Which tokens may come next; None: all."""

    def accept(self, token: int) -> None:
        """The token that came."""


@dataclass(frozen=True)
class Plan:
    """All that a generation needs to know."""

    prompt: list[int]
    sampling: SamplingParameters
    most_tokens: int
    fewest_tokens: int
    eos: frozenset[int]
    stops: Sequence[str]
    logprobs: int | None
    skip_special_tokens: bool
    deadline: float | None
    tokenizer: Tokenizer
    proposer: Proposer | None = None
    most_in_call: int = 1
    grammar: Grammar | None = None


@dataclass
class _Found:
    """What there is so far."""

    tokens: list[int] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    sampling: float = 0.0
    prefill: float = 0.0
    first: float = 0.0
    reason: str = "cancelled"
    stop: str | int | None = None


class TokenStream(Iterator[str]):
    """Pieces of a text as they come. `result` is there when the pieces have ended.

    A piece has whole characters and at least one. `cancel` ends the text, from any thread: the pieces so far
    are the result, with "cancelled" as its reason. `close` (or the end of a `with`) does so too. One thread
    reads.
    """

    def __init__(
        self,
        session: CacheSession,
        plan: Plan,
        done: Callable[[GenerationResult | None], None],
    ) -> None:
        self._session, self._plan, self._done = session, plan, done
        self._is_begun = False
        self._cancelled = threading.Event()
        self._found = _Found()
        self._begin = time.perf_counter()
        self._end = None if plan.deadline is None else self._begin + plan.deadline
        self._decoder = Decoder(session, plan.proposer, plan.most_in_call)
        self._result: GenerationResult | None = None
        self._steps = self._pieces()

    def __next__(self) -> str:
        return next(self._steps)

    def __enter__(self) -> TokenStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __aiter__(self) -> AsyncIterator[str]:
        return self._read_in_threads()

    @property
    def result(self) -> GenerationResult:
        """The text with what is known about it; reads what is left of the stream."""
        for _ in self:
            pass
        if self._result is None:
            raise Cancelled("the stream was closed before its end")
        return self._result

    @property
    def tokens(self) -> tuple[int, ...]:
        """The tokens so far."""
        return tuple(self._found.tokens)

    @property
    def logprobs(self) -> tuple[TokenLogprob, ...]:
        """Log-probabilities so far, where asked for."""
        return tuple(self._found.logprobs)

    def cancel(self) -> None:
        """Ends the text before the next token; a call of the program that runs is stopped."""
        self._cancelled.set()
        if self._result is None:
            self._session.cancel()

    def close(self) -> None:
        """Gives the session back without reading on."""
        self._cancelled.set()
        if not self._is_begun:
            self._is_begun = True
            self._done(None)
        self._steps.close()

    def _pieces(self) -> Generator[str, None, None]:
        self._is_begun, result = True, None
        try:
            yield from self._loop()
            result = self._result = self._finished()
        finally:
            self._done(result)

    def _loop(self) -> Iterator[str]:
        plan, found = self._plan, self._found
        text = plan.tokenizer.stream(skip_special_tokens=plan.skip_special_tokens)
        stops = StopStrings(plan.stops)
        try:
            for token in self._tokens():
                piece = stops.push("" if found.stop is not None else text.push(token))
                if stops.found is not None:
                    found.reason, found.stop = "stop", stops.found
                yield from self._give(piece)
                if stops.found is not None:
                    break
        except Cancelled:
            found.reason = "cancelled"
        except DeadlineExceeded:
            found.reason = "deadline"
        finally:
            self._decoder.drop_guesses()
        if found.stop is None or isinstance(found.stop, int):
            yield from self._give(self._rest(text, stops))

    def _rest(self, text: TextStream, stops: StopStrings) -> str:
        """What was held back when no token follows."""
        rest = stops.push(text.finish())
        if stops.found is None:
            return rest + stops.finish()
        self._found.reason, self._found.stop = "stop", stops.found
        return rest

    def _tokens(self) -> Iterator[int]:
        """Tokens one by one; says in `_found` why they end."""
        plan, found = self._plan, self._found
        counts = TokenCounts(plan.sampling, ids_of(plan.prompt))
        logits = self._decoder.first(plan.prompt, self._remaining)
        found.prefill = time.perf_counter() - self._begin
        for place in range(plan.most_tokens):
            token = self._chosen(logits, counts, place)
            if place == 0:
                found.first = time.perf_counter() - self._begin
            if token in plan.eos:
                found.reason, found.stop = "stop", token
                yield token
                return
            if place + 1 == plan.most_tokens:
                found.reason = "length"
                yield token
                return
            yield token
            if found.stop is not None:
                return
            logits = self._decoder.after(token, self._remaining)

    def _chosen(self, logits: npt.NDArray[np.float32], counts: TokenCounts, place: int) -> int:
        begin = time.perf_counter()
        plan, found = self._plan, self._found
        allowed = plan.grammar.allowed() if plan.grammar is not None else None
        if place < plan.fewest_tokens and plan.eos:
            allowed = np.ones(logits.size, np.bool_) if allowed is None else allowed
            allowed[[token for token in plan.eos if token < logits.size]] = False
        token = sample(processed(logits, plan.sampling, counts, allowed), plan.sampling, place)
        counts.add(token)
        if plan.grammar is not None:
            plan.grammar.accept(token)
        if plan.logprobs is not None:
            found.logprobs.append(_logprob(logits, token, plan.logprobs))
        found.tokens.append(token)
        found.sampling += time.perf_counter() - begin
        return token

    def _remaining(self) -> float | None:
        """Seconds that the next call may take; raises where none may follow."""
        if self._cancelled.is_set():
            raise Cancelled("the text was cancelled")
        if self._end is None:
            return None
        left = self._end - time.perf_counter()
        if left <= 0:
            raise DeadlineExceeded("the time for the text is over")
        return left

    def _give(self, piece: str) -> Iterator[str]:
        if piece:
            self._found.pieces.append(piece)
            yield piece

    def _finished(self) -> GenerationResult:
        found, plan = self._found, self._plan
        decode = time.perf_counter() - self._begin - found.first if found.tokens else 0.0
        decoded = max(0, len(found.tokens) - 1)
        return GenerationResult(
            text="".join(found.pieces),
            tokens=tuple(found.tokens),
            finish_reason=found.reason,
            stop=found.stop,
            prompt_tokens=len(plan.prompt),
            reused_tokens=self._decoder.reused,
            seed=plan.sampling.seed,
            logprobs=tuple(found.logprobs) if plan.logprobs is not None else None,
            timings=Timings(found.prefill, found.first, decode, found.sampling, decoded),
            proposed_tokens=self._decoder.proposed,
            accepted_tokens=self._decoder.accepted,
        )

    async def _read_in_threads(self) -> AsyncIterator[str]:
        import asyncio

        ended: Any = object()
        waiting: asyncio.Future[Any] | None = None
        try:
            while True:
                waiting = asyncio.ensure_future(asyncio.to_thread(next, self._steps, ended))
                piece = await asyncio.shield(waiting)
                if piece is ended:
                    return
                yield piece
        finally:
            if self._result is None:
                # The task was cancelled, or reads no further: the thread ends at its token.
                self.cancel()
                if waiting is not None and not waiting.done():
                    await asyncio.wait([waiting])
                self._steps.close()


def _logprob(logits: npt.NDArray[np.float32], token: int, count: int) -> TokenLogprob:
    found = log_probabilities(logits)
    if count < 1:
        return TokenLogprob(token, float(found[token]))
    best = np.argpartition(found, found.size - min(count, found.size))[-count:]
    best = best[np.lexsort((best, -found[best]))]
    return TokenLogprob(token, float(found[token]), tuple((int(at), float(found[at])) for at in best))
