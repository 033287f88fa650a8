"""The cache of an exported language model: rows of buffers, written at the positions that the caller gives.

transformers' own static layers count positions themselves. Here a position is an input of the program, so
that a chunk of a prompt, a single token and a cache that was set back need nothing but other positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

#: Keys and values of a layer, each [batch, key heads, max_seq_len, head dim]; None where a layer has none.
Buffers = Sequence[tuple[Tensor, Tensor] | None]


class PositionedLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """Keys and values of one layer, written in place at `rows` by tokens of `positions`, int64 [tokens]."""

    is_compileable = True
    is_sliding = False

    def __init__(
        self,
        buffers: tuple[Tensor, Tensor] | None,
        positions: Tensor,
        max_seq_len: int,
        rows: Tensor | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.positions, self.max_seq_len = positions, max_seq_len
        self.rows = positions if rows is None else rows
        if buffers is not None:
            self.keys, self.values = buffers
            self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Zeros of the shapes that the model's first call shows."""
        shapes = ((*each.shape[:2], self.max_seq_len, each.shape[3]) for each in (key_states, value_states))
        self.keys, self.values = (torch.zeros(shape, dtype=key_states.dtype) for shape in shapes)
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Writes the new rows; returns the whole buffers, of which the mask shows the filled part."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        keys, values = self.keys, self.values
        assert keys is not None
        assert values is not None
        keys.index_copy_(2, self.rows, key_states)
        values.index_copy_(2, self.rows, value_states)
        return keys, values

    def get_mask_sizes(self, _query_length: int) -> tuple[int, int]:
        """All rows, from the first on."""
        return self.max_seq_len, 0

    def get_seq_length(self) -> Tensor:  # type: ignore[override]
        """The positions of the queries, which `causal_mask` takes as offset."""
        return self.positions

    def get_max_length(self) -> int:
        """The number of rows."""
        return self.max_seq_len


def cache_over(buffers: Buffers, positions: Tensor, max_seq_len: int, rows: Tensor | None = None) -> Cache:
    """A cache for one call. It is made in `forward`, so that a capture sees buffers of the module.

    `rows`: where keys and values go, int64 [tokens]; None: at their positions.
    """
    return Cache(layers=[PositionedLayer(each, positions, max_seq_len, rows) for each in buffers])
