"""Several texts in one cache: their tokens are computed in one call, so the weights are read once for all.

Every text runs in a thread of its own, as if it were alone. What a text asks for waits until all texts of
the cache have asked, or have not for a moment; then one of the threads makes the call for all of them. Texts
come and go between calls, and a prompt is computed beside the next tokens of the others.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pteron.errors import InputError
from pteron.llm.cache_rows import CacheRows
from pteron.llm.cache_session import CacheSession, Remaining, no_limit
from pteron.llm.model_folder import PROGRAM, ModelFolder, damaged

METHOD = "forward_ragged"
#: Seconds that a call waits for texts which have not asked: their reader may take its time.
_PATIENCE = 0.002
_INPUTS = 5

_Ints = npt.NDArray[np.int64]


@dataclass(eq=False)
class _Request:
    """Tokens of one text, and what came of them."""

    session: SharedSession
    tokens: Sequence[int]
    kept: int
    logits: npt.NDArray[np.float32] | None = None
    error: BaseException | None = None

    @property
    def is_done(self) -> bool:
        return self.logits is not None or self.error is not None


class SharedCache:
    """A cache whose rows belong to several texts. Any number of threads may use it."""

    def __init__(self, folder: ModelFolder, threads: int | None, chunk: int) -> None:
        """ProgramError where the program's method takes something else."""
        inputs = folder.program.inputs(METHOD)
        if len(inputs) != _INPUTS or any(spec.kind != "tensor" or spec.dtype != "int64" for spec in inputs):
            raise damaged(PROGRAM, f"{METHOD} takes other inputs than tokens, positions, rows, texts, last")
        self.folder, self.chunk = folder, max(1, min(chunk, folder.max_seq_len))
        self._method = folder.program.load_method(METHOD, num_threads=threads)
        self._rows = CacheRows(folder.max_seq_len)
        self._promised = 0
        self._texts: set[SharedSession] = set()
        self._next_text = 0
        self._pending: list[_Request] = []
        self._is_running = False
        self._changed = threading.Condition()

    def join(self, length: int) -> SharedSession:
        """A text of `length` tokens at most; waits until so many rows are promised to no other text."""
        length = min(length, self.folder.max_seq_len)
        with self._changed:
            self._changed.wait_for(lambda: self._promised + length <= self.folder.max_seq_len)
            self._promised += length
            self._next_text += 1
            session = SharedSession(self, self._next_text, length)
            self._texts.add(session)
            return session

    def leave(self, session: SharedSession) -> None:
        """The text has ended; its rows are free. Once is enough."""
        with self._changed:
            if session in self._texts:
                self._texts.remove(session)
                self._promised -= session.length
                self._rows.give(session.rows)
                session.rows.clear()
                self._changed.notify_all()

    def compute(self, session: SharedSession, tokens: Sequence[int], kept: int) -> npt.NDArray[np.float32]:
        """Logits [kept, vocabulary] of the last of these tokens, which go behind those of the text."""
        request = _Request(session, tokens, kept)
        with self._changed:
            while len(session.rows) < len(session.tokens) + len(tokens):
                session.rows.append(self._rows.take(session.rows[-1] if session.rows else None))
            self._pending.append(request)
            # Whoever waits may be the one that was waited for.
            self._changed.notify_all()
        while not request.is_done:
            if batch := self._batch(request):
                self._run(batch)
        if request.error is not None:
            raise request.error
        assert request.logits is not None
        return request.logits

    def _batch(self, request: _Request) -> list[_Request]:
        """What this thread is to compute now; nothing where another one does, or has."""
        with self._changed:
            self._changed.wait_for(
                lambda: request.is_done or (not self._is_running and self._all_have_asked()), _PATIENCE
            )
            if request.is_done or self._is_running:
                return []
            found: list[_Request] = []
            count = 0
            for each in self._pending:
                # The limit holds for prompts that come together; one alone is within it.
                if not found or count + len(each.tokens) <= self.chunk + len(self._texts):
                    found.append(each)
                    count += len(each.tokens)
            self._pending = [each for each in self._pending if each not in found]
            self._is_running = True
            return found

    def _all_have_asked(self) -> bool:
        return len(self._pending) >= len(self._texts)

    def _run(self, batch: list[_Request]) -> None:
        error: BaseException | None = None
        rows: list[npt.NDArray[np.float32]] = []
        try:
            logits = np.asarray(self._method.execute(_inputs(batch))[0])[0]
            ends = np.cumsum([each.kept for each in batch])
            # A copy: the next call writes where these lie.
            rows = np.split(logits.astype(np.float32, copy=True), ends[:-1].tolist())
        except BaseException as found:
            error = found
        with self._changed:
            for at, each in enumerate(batch):
                each.logits, each.error = (rows[at], None) if error is None else (None, error)
            self._is_running = False
            self._changed.notify_all()
        if error is not None and not isinstance(error, Exception):
            raise error


class SharedSession(CacheSession):
    """A text in a `SharedCache`. One thread uses it at a time; `cancel` comes into force between calls.

    Attributes:
        text: its number. `length`: tokens at most. `rows`: those of the cache, by position.
    """

    def __init__(self, cache: SharedCache, text: int, length: int) -> None:
        self._cache, self._folder, self._chunk = cache, cache.folder, cache.chunk
        self.text, self.length = text, length
        self.rows: list[int] = []
        self._tokens: list[int] = []

    @property
    def capacity(self) -> int:
        """Tokens that were promised to the text."""
        return self.length

    def extend(self, tokens: Sequence[int], remaining: Remaining = no_limit) -> npt.NDArray[np.float32]:
        """As `CacheSession.extend`."""
        row: npt.NDArray[np.float32] = self._computed(tokens, remaining, 1)[0]
        return row

    def extend_all(self, tokens: Sequence[int], remaining: Remaining = no_limit) -> npt.NDArray[np.float32]:
        """As `CacheSession.extend_all`."""
        return self._computed(tokens, remaining, len(tokens))

    def rewind(self, length: int) -> int:
        """As `CacheSession.rewind`: what is computed next takes the same rows."""
        del self._tokens[length:]
        return len(self._tokens)

    def cancel(self) -> None:
        """Other texts need the call that runs; `remaining` raises before the next one."""

    def _computed(self, tokens: Sequence[int], remaining: Remaining, kept: int) -> npt.NDArray[np.float32]:
        if len(tokens) > self.room:
            raise InputError(
                "the tokens do not fit into the cache",
                expected=f"at most {self.length} tokens",
                got=f"{len(self._tokens) + len(tokens)} tokens",
            )
        remaining()
        found = self._cache.compute(self, tokens, kept)
        self._tokens += tokens
        return found


def _inputs(batch: list[_Request]) -> list[_Ints]:
    """Tokens, their positions, rows and texts, and the numbers of those that get logits."""
    tokens: list[int] = []
    positions: list[int] = []
    rows: list[int] = []
    texts: list[int] = []
    last: list[int] = []
    for each in batch:
        begin = len(each.session.tokens)
        end = begin + len(each.tokens)
        tokens += each.tokens
        positions += range(begin, end)
        rows += each.session.rows[begin:end]
        texts += [each.session.text] * len(each.tokens)
        last += range(len(tokens) - each.kept, len(tokens))
    return [
        np.array([tokens], np.int64),
        *(np.array(each, np.int64) for each in (positions, rows, texts, last)),
    ]
