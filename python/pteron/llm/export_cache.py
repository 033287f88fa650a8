"""The cache of an exported language model: rows of buffers, written at the positions that the caller gives.

transformers' own static layers count positions themselves. Here a position is an input of the program, so
that a chunk of a prompt, a single token and a cache that was set back need nothing but other positions.

A layer with a window may keep fewer rows than there are positions: a ring, in which a position takes the row
of the one that lies a whole ring before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

#: Keys and values of a layer, each [batch, key heads, max_seq_len, head dim]; None where a layer has none.
#: Where they are int8, the factors of their rows follow, each float32 [batch, key heads, max_seq_len, 1].
Buffers = Sequence[tuple[Tensor, ...] | None]


class PositionedLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """Keys and values of one layer, written in place at `rows` by tokens of `positions`, int64 [tokens]."""

    is_compileable = True
    is_sliding = False

    def __init__(
        self,
        buffers: tuple[Tensor, ...] | None,
        positions: Tensor,
        max_seq_len: int,
        rows: Tensor | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.positions, self.max_seq_len = positions, max_seq_len
        self.rows = positions if rows is None else rows
        self._factors: tuple[Tensor, ...] = ()
        if buffers is not None:
            self.keys, self.values, *factors = buffers
            self._factors = tuple(factors)
            self.is_initialized = True

    @property
    def row_count(self) -> int:
        """Rows of the buffers."""
        return self.max_seq_len

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Zeros of the shapes that the model's first call shows."""
        shapes = ((*each.shape[:2], self.row_count, each.shape[3]) for each in (key_states, value_states))
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
        if self._factors:
            of_keys, of_values = self._factors
            return (
                self._stored(key_states, keys, of_keys),
                self._stored(value_states, values, of_values),
            )
        keys.index_copy_(2, self.rows, key_states)
        values.index_copy_(2, self.rows, value_states)
        return keys, values

    def _stored(self, states: Tensor, rows: Tensor, factors: Tensor) -> Tensor:
        """Writes new rows as int8 with a factor each; what all rows stand for.

        The run half reads the integers of the filled part alone (`fuse_attention`).
        """
        found, scales = quantised_rows(states)
        rows.index_copy_(2, self.rows, found)
        factors.index_copy_(2, self.rows, scales)
        return rows.float() * factors

    def get_mask_sizes(self, _query_length: int) -> tuple[int, int]:
        """All rows, from the first on."""
        return self.max_seq_len, 0

    def get_seq_length(self) -> Tensor:  # type: ignore[override]
        """The positions of the queries, which `causal_mask` takes as offset."""
        return self.positions

    def get_max_length(self) -> int:
        """The number of rows."""
        return self.max_seq_len


class RingLayer(PositionedLayer):  # type: ignore[no-untyped-call]
    """One layer with a window, whose buffers have `rings` rows: those of the latest positions."""

    is_sliding = True

    def __init__(
        self, buffers: tuple[Tensor, ...] | None, positions: Tensor, max_seq_len: int, rings: int
    ) -> None:
        super().__init__(buffers, positions, max_seq_len, positions % rings)
        self._rings = rings

    @property
    def row_count(self) -> int:
        """Rows of the buffers."""
        return self._rings

    def get_mask_sizes(self, _query_length: int) -> tuple[int, Any]:
        """All rows, and the position of each, for the offset of `causal_mask`; those below 0 are empty."""
        last = self.positions[-1]
        return self._rings, last - (last - torch.arange(self._rings)) % self._rings


def quantised_rows(states: Tensor) -> tuple[Tensor, Tensor]:
    """Rows as int8, and the factor of each, float32 [..., 1]: symmetric, the largest element becomes 127."""
    wide = states.float()
    factors = wide.abs().amax(-1, keepdim=True) / 127
    # A row of zeros stays one.
    return torch.round(wide / factors.clamp_min(torch.finfo(torch.float32).tiny)).to(torch.int8), factors


def as_int8(buffers: Buffers) -> Buffers:
    """Zeroed buffers of the same extents with int8 rows and their factors."""
    return [
        pair
        and (
            *(torch.zeros(each.shape, dtype=torch.int8) for each in pair),
            *(torch.zeros(*each.shape[:3], 1) for each in pair),
        )
        for pair in buffers
    ]


def ring_rows(config: Any, max_seq_len: int, max_chunk: int | None) -> list[int | None]:
    """Rows of the ring of each layer; None where a layer keeps all positions.

    A call of `max_chunk` tokens needs the window of its first token and its own rows. None: no rings.
    """
    config = config.get_text_config()
    layers, window = config.num_hidden_layers, getattr(config, "sliding_window", None)
    if max_chunk is None or not isinstance(window, int):
        return [None] * layers
    kinds = getattr(config, "layer_types", None) or ["sliding_attention"] * layers
    rows = window + max_chunk - 1
    return [rows if kind == "sliding_attention" and rows < max_seq_len else None for kind in kinds]


def cache_over(
    buffers: Buffers,
    positions: Tensor,
    max_seq_len: int,
    rows: Tensor | None = None,
    rings: Sequence[int | None] | None = None,
) -> Cache:
    """A cache for one call. It is made in `forward`, so that a capture sees buffers of the module.

    `rows`: where keys and values go, int64 [tokens]; None: at their positions. `rings`: of each layer, see
    `ring_rows`.
    """
    layers: list[Any] = []
    for each, ring in zip(buffers, rings or [None] * len(buffers), strict=True):
        if ring is None:
            layers.append(PositionedLayer(each, positions, max_seq_len, rows))
        else:
            layers.append(RingLayer(each, positions, max_seq_len, ring))
    return Cache(layers=layers)
