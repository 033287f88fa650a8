"""`forward_ragged`: tokens of several sequences in one call, whatever their lengths.

The tokens of all sequences are rows of one product, so the weights are read once for them. The cache is that
of `forward`, and its rows are shared: a row belongs to a position of a sequence, as the caller says, and a
token sees the rows of its own sequence up to its own position.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram


@dataclass(frozen=True)
class Rows:
    """Whose the rows of a cache are.

    Attributes:
        positions, sequences: of each row, int64 [rows]. `own`: the sequence of each token, int64 [tokens].
    """

    positions: Tensor
    sequences: Tensor
    own: Tensor

    def restrict(self, seen: Tensor) -> Tensor:
        """What tokens see, bool [tokens, rows], without the rows of other sequences."""
        return seen & (self.sequences[None, :] == self.own[:, None])


_rows: ContextVar[Rows | None] = ContextVar("rows", default=None)


def shared_rows() -> Rows | None:
    """Whose rows those of the cache are; None where all are of one sequence, in the order of positions."""
    return _rows.get()


@contextmanager
def sharing(rows: Rows) -> Iterator[None]:
    """Masks are made for these rows meanwhile."""
    token = _rows.set(rows)
    try:
        yield
    finally:
        _rows.reset(token)


class RowOwners(nn.Module):
    """State: the position and the sequence of each row; no row has a sequence at first."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.register_buffer("positions", torch.zeros(rows, dtype=torch.int64), persistent=False)
        self.register_buffer("sequences", torch.full((rows,), -1), persistent=False)

    def write(self, row: Tensor, position: Tensor, sequence: Tensor) -> Rows:
        """Gives rows to positions of sequences, all int64 [tokens]."""
        positions, sequences = self.positions, self.sequences
        positions.index_copy_(0, row, position)  # type: ignore[operator]
        sequences.index_copy_(0, row, sequence)  # type: ignore[operator]
        return Rows(positions, sequences, sequence)  # type: ignore[arg-type]


def capture_ragged(module: nn.Module, max_seq_len: int) -> ExportedProgram:
    """The program of `forward_ragged(input_ids [1, N], cache_position, cache_row, sequence, last [M])`."""
    tokens, last = min(5, max_seq_len), min(2, max_seq_len)
    each = torch.arange(tokens)
    # Tensors of their own: a capture takes one that comes twice for one input.
    example = (
        torch.zeros(1, tokens, dtype=torch.int64),
        each.clone(),
        each.clone(),
        torch.zeros_like(each),
        torch.arange(last),
    )
    shapes: Any = None
    if max_seq_len > 1:
        length, kept = Dim("tokens", min=1, max=max_seq_len), Dim("kept", min=1, max=max_seq_len)
        names = ("cache_position", "cache_row", "sequence")
        shapes = {"input_ids": {1: length}, **{name: {0: length} for name in names}, "last": {0: kept}}
    return torch.export.export(module.eval(), example, dynamic_shapes=shapes, strict=False)
