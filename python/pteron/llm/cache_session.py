"""A session of the program with the tokens that its cache holds.

The tokens are the truth: whatever happens to the cache, it can be computed from them again. So a call that
fails half way never harms what was there before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pteron.errors import InputError
from pteron.llm.model_folder import ModelFolder, damaged

#: Seconds that a call may still take, asked before every call; it raises where nothing may follow.
Remaining = Callable[[], "float | None"]


def no_limit() -> None:
    """A call may take any time."""


class CacheSession:
    """A cache. One thread uses it at a time."""

    #: Methods beside those of the decoder that share its state.
    further_methods: tuple[str, ...] = ()

    def __init__(self, folder: ModelFolder, threads: int | None, chunk: int) -> None:
        self._folder = folder
        self._signature = folder.signature
        names = ["forward", *self.further_methods]
        if folder.all_positions_method not in (None, "forward"):
            names.append(str(folder.all_positions_method))
        if len(names) > 1:
            self._methods: Mapping[str, Any] = folder.program.load_methods(names, num_threads=threads)
        else:
            self._methods = {"forward": folder.program.load_method("forward", num_threads=threads)}
        # Without a cache every call takes all tokens from the first one on.
        has_cache = self._signature.positions != "none"
        self._chunk = max(1, min(chunk, self._signature.chunk)) if has_cache else self._signature.chunk
        self._tokens: list[int] = []
        self._is_harmed = False
        shape: tuple[int, ...] = (1, self._signature.vocabulary)
        if len(folder.program.outputs("forward")[-1].shape or ()) == 3:
            shape = (1, *shape)
        is_plain = folder.program.outputs("forward")[-1].dtype == "float32"
        self._row = np.empty(shape, np.float32) if is_plain and has_cache else None
        self._outputs = [None] * (len(folder.program.outputs("forward")) - 1)

    @property
    def tokens(self) -> tuple[int, ...]:
        """The tokens in the cache."""
        return tuple(self._tokens)

    @property
    def capacity(self) -> int:
        """Tokens that the cache holds at most."""
        return self._folder.max_seq_len

    @property
    def room(self) -> int:
        """Tokens that still fit."""
        return self.capacity - len(self._tokens)

    def common_prefix(self, tokens: Sequence[int]) -> int:
        """How many of these tokens the cache already holds at its beginning."""
        for place, (mine, theirs) in enumerate(zip(self._tokens, tokens, strict=False)):
            if mine != theirs:
                return place
        return min(len(self._tokens), len(tokens))

    def prefill(
        self, tokens: Sequence[int], remaining: Remaining = no_limit
    ) -> tuple[npt.NDArray[np.float32], int]:
        """The logits behind these tokens, and how many of them were in the cache before.

        The cache holds exactly these tokens then. `remaining` is asked between chunks.
        """
        kept = min(self.common_prefix(tokens), len(tokens) - 1)
        kept = self.rewind(kept)
        logits = None
        for begin in range(kept, len(tokens), self._chunk):
            logits = self.extend(tokens[begin : begin + self._chunk], remaining)
        assert logits is not None
        return logits, kept

    def extend(self, tokens: Sequence[int], remaining: Remaining = no_limit) -> npt.NDArray[np.float32]:
        """Puts tokens behind those of the cache; logits [vocabulary] of the last one, until the next call.

        At most as many tokens as one call takes.
        """
        outputs = [*self._outputs, self._row] if len(tokens) == 1 and self._row is not None else None
        row: npt.NDArray[np.float32] = self._float(self._run("forward", tokens, remaining, outputs))[-1]
        return row

    def extend_all(self, tokens: Sequence[int], remaining: Remaining = no_limit) -> npt.NDArray[np.float32]:
        """The same with the logits of each of these tokens, [tokens, vocabulary]."""
        method = self._folder.all_positions_method
        assert method is not None
        return self._float(self._run(method, tokens, remaining, None))[-len(tokens) :]

    def rewind(self, length: int) -> int:
        """Forgets tokens behind the first `length`, or all of them where the cache cannot; how many stay."""
        if length < len(self._tokens) and not self._folder.can_rewind:
            length = 0
        if length == 0 or (self._is_harmed and not self._folder.can_rewind):
            length = 0
            for method in self._methods.values():
                method.reset_state()
            self._is_harmed = False
        del self._tokens[length:]
        return length

    def cancel(self) -> None:
        """Stops the call that is running, from any thread."""
        for method in self._methods.values():
            method.cancel()

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """A copy of the buffers of the program."""
        if self._is_harmed and not self._folder.can_rewind:
            self.rewind(0)
        found: dict[str, npt.NDArray[Any]] = self._methods["forward"].get_state()
        return found

    def set_state(self, tokens: Sequence[int], state: Mapping[str, Any]) -> None:
        """Puts back what `tokens` and `state` gave; nothing changes where the buffers do not fit.

        A cache that cannot be read stays empty: the next call computes the tokens again.
        """
        if not self._folder.has_named_state:
            self.rewind(0)
            return
        self._methods["forward"].set_state(state)
        self._tokens, self._is_harmed = list(tokens), False

    def _run(
        self, name: str, tokens: Sequence[int], remaining: Remaining, outputs: list[Any] | None
    ) -> npt.NDArray[Any]:
        begin, count = len(self._tokens), len(tokens)
        if begin + count > self._folder.max_seq_len:
            raise InputError(
                "the tokens do not fit into the cache",
                expected=f"at most {self._folder.max_seq_len} tokens",
                got=f"{begin + count} tokens",
            )
        name, first = self._call(name, tokens, remaining)
        match self._signature.positions:
            case "none":
                inputs = [first]
            case "start":
                inputs = [first, np.array([begin], np.int64)]
            case _:
                inputs = [first, np.arange(begin, begin + count)]
        seconds = remaining()
        self._is_harmed = True
        results = self._methods[name].execute(inputs, outputs=outputs, deadline=seconds)
        self._is_harmed = False
        self._tokens += tokens
        logits = np.asarray(results[-1])
        return logits.reshape(-1, logits.shape[-1])

    def _call(self, name: str, tokens: Sequence[int], _remaining: Remaining) -> tuple[str, npt.NDArray[Any]]:
        """The method that puts these tokens behind those of the cache, and its first input."""
        given = tokens if self._signature.positions != "none" else [*self._tokens, *tokens]
        return name, np.array([given], np.int64)

    def _float(self, logits: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        if logits.dtype.kind != "f" and logits.dtype.name != "bfloat16":
            raise damaged("model.pte", f"its logits are {logits.dtype}, no floats")
        return logits.astype(np.float32, copy=False)


class SessionPool:
    """Sessions that wait for the next prompt, so that one with the same beginning is not computed again."""

    def __init__(self, new: Callable[[], CacheSession], most_idle: int) -> None:
        self._new, self._most_idle = new, most_idle
        self._idle: list[CacheSession] = []
        self._lock = threading.Lock()

    def take(self, tokens: Sequence[int]) -> CacheSession:
        """The waiting session that has most of these tokens; a new one where none waits."""
        with self._lock:
            if self._idle:
                best = max(self._idle, key=lambda session: session.common_prefix(tokens))
                # A session without a common beginning is worth keeping while there is room for one more.
                if best.common_prefix(tokens) or len(self._idle) >= self._most_idle:
                    self._idle.remove(best)
                    return best
        return self._new()

    def give(self, session: CacheSession) -> None:
        """Puts a session back; the one that has waited longest goes where there are too many."""
        with self._lock:
            self._idle.append(session)
            del self._idle[: max(0, len(self._idle) - self._most_idle)]
