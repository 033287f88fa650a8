"""Rows of tokens to vectors: batches of rows that are about equally long, long rows alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pteron.embeddings.embedding_folder import FORWARD, LONG, EmbeddingFolder

Row = Sequence[int]
#: Tokens of padding that take as long as a call does beside its tokens: beyond them two calls are faster.
_MOST_PADDING = 12


class TokenBatches:
    """The calls of a folder's program. Any number of threads may use it."""

    def __init__(self, folder: EmbeddingFolder, threads: int | None) -> None:
        """`threads`: of a call; None: all. The program is made ready to run, raising what that raises."""
        self._folder, self._threads = folder, threads
        folder.program.load_method(FORWARD)

    def embed(self, rows: Sequence[Row], excluded: int, batch_size: int) -> npt.NDArray[np.float32]:
        """Vectors, float32 [rows, dimension], in the order of the rows, each of one token or more.

        `excluded`: tokens at the beginning of each row that its vector leaves out, where the model can.
        """
        found = np.empty((len(rows), self._folder.forward.dimension), np.float32)
        for method, places in self._batches(rows, batch_size):
            inputs = self._inputs([rows[place] for place in places], excluded)
            found[places] = self._folder.program.execute(method, inputs, num_threads=self._threads)[0]
        return found

    def _batches(self, rows: Sequence[Row], batch_size: int) -> Iterator[tuple[str, list[int]]]:
        """Methods and the rows that they take, the longest first: so the first call needs the most memory."""
        order = sorted(range(len(rows)), key=lambda place: -len(rows[place]))
        begin = 0
        while begin < len(order):
            longest = len(rows[order[begin]])
            is_long = longest > self._folder.forward.tokens
            most = 1 if is_long else min(batch_size, self._folder.forward.texts)
            end, padding = begin + 1, 0
            while end < min(begin + most, len(order)):
                padding += longest - len(rows[order[end]])
                if padding > _MOST_PADDING:
                    break
                end += 1
            yield LONG if is_long else FORWARD, order[begin:end]
            begin = end

    def _inputs(self, rows: Sequence[Row], excluded: int) -> list[npt.NDArray[Any]]:
        lengths = np.array([len(row) for row in rows])
        ids = np.full((len(rows), lengths.max()), self._folder.pad, np.int64)
        for place, row in enumerate(rows):
            ids[place, : len(row)] = row
        columns = np.arange(ids.shape[1])
        mask = columns < lengths[:, None]
        inputs = [ids, mask.astype(np.int64)]
        if self._folder.forward.has_pooled:
            inputs.append((mask & (columns >= excluded)).astype(np.int64))
        return inputs
