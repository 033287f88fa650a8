"""Attention, caches and position biases of encoder-decoders.

Keys and values of the source are computed by `encode` and lie in buffers; the decoder reads them. Masks come
with the call, in four dimensions, which transformers hands on as they are.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import CacheLayerMixin
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from pteron.errors import ExportError
from pteron.llm.export_attention import note
from pteron.llm.export_cache import PositionedLayer

NAME = "pteron_encoder_decoder"


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    position_bias: Tensor | None = None,
    **_kwargs: Any,
) -> tuple[Tensor, None]:
    """[batch, tokens, heads, dim] of queries [batch, heads, tokens, dim]; keys have as many heads.

    A `position_bias` is of `use_bias_tables` and hides later positions itself, so that the mask is not added.
    """
    note(module)
    if query.shape[1] != key.shape[1]:
        raise ExportError(
            f"llm.export: {type(module).__name__} shares keys between heads, which is not known here"
        )
    scaled = query * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    scores = torch.matmul(scaled, key.transpose(2, 3))
    added = attention_mask if position_bias is None else position_bias
    if added is not None:
        scores = scores + added
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    return torch.matmul(weights, value).transpose(1, 2), None


class StartedLayer(PositionedLayer):  # type: ignore[no-untyped-call]
    """Keys and values of the decoder's own tokens; the first position of a call is what it holds so far."""

    def get_seq_length(self) -> Tensor:  # type: ignore[override]
        """int64 [1]."""
        return self.positions[:1]


class SourceLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """Keys and values of the source, [batch, heads, max_source_len, dim], written by `encode`."""

    is_compileable = True
    is_sliding = False

    def __init__(
        self, buffers: tuple[Tensor, Tensor] | None, *, is_filled: bool, is_whole: bool = False
    ) -> None:
        """`is_filled`: is it read, not written? `is_whole`: does every source fill all rows?"""
        super().__init__()  # type: ignore[no-untyped-call]
        self.is_filled, self.is_whole = is_filled, is_whole
        if buffers is not None:
            self.keys, self.values = buffers
            self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """What a model's first call shows."""
        self.keys, self.values, self.is_initialized = key_states, value_states, True

    def update(
        self, key_states: Tensor, value_states: Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Writes the rows of the source, which may be fewer than the buffers have."""
        if self.is_filled:
            raise ExportError("llm.export: the decoder computes keys of its source again in every call")
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        elif self.is_whole:
            self.keys.copy_(key_states)  # type: ignore[union-attr]
            self.values.copy_(value_states)  # type: ignore[union-attr]
        else:
            rows = torch.arange(key_states.shape[2])
            self.keys.index_copy_(2, rows, key_states)  # type: ignore[union-attr]
            self.values.index_copy_(2, rows, value_states)  # type: ignore[union-attr]
        return key_states, value_states

    def get_mask_sizes(self, _query_length: int) -> tuple[int, int]:
        """All rows, from the first on."""
        return self.get_max_length(), 0

    def get_seq_length(self) -> int:
        """More than 0 where the decoder is to read the buffers."""
        return self.get_max_length() if self.is_filled else 0

    def get_max_length(self) -> int:
        """The number of rows."""
        return int(self.keys.shape[2])  # type: ignore[union-attr]


def causal_mask(positions: Tensor, length: int, dtype: torch.dtype) -> Tensor:
    """0 where a query sees a row of the cache, else -inf: [1, 1, tokens, length]."""
    seen = torch.arange(length)[None] <= positions[:, None]
    return torch.where(seen, 0.0, -math.inf).to(dtype)[None, None]


def use_bias_tables(model: nn.Module, source_length: int, length: int) -> None:
    """Relative positions by tables: biases of all distances are constants, [heads, distances].

    A decoder's table has -inf for later positions. Attention over the source has no positions, and gets no
    bias instead of zeros.
    """
    for name, module in list(model.named_modules()):
        if not hasattr(module, "compute_bias"):
            continue
        if name.endswith("EncDecAttention"):
            module.has_relative_attention_bias = True
            object.__setattr__(module, "compute_bias", _no_bias)
        elif module.has_relative_attention_bias:
            longest = length if module.is_decoder else source_length
            module.register_buffer("bias_table", _table(module, longest), persistent=False)
            object.__setattr__(module, "compute_bias", partial(_rows, module, longest))


def _table(module: nn.Module, length: int) -> Tensor:
    every: Tensor = module.compute_bias(length, length)[0]  # type: ignore[operator]
    # The last query's row has all distances back, the first one's all ahead.
    back, ahead = every[:, -1], every[:, 0, 1:]
    if module.is_decoder:
        ahead = torch.full_like(ahead, -math.inf)
    return torch.cat([back, ahead], dim=1).contiguous()


def _rows(
    module: nn.Module, longest: int, queries: int, keys: int, device: Any = None, past_seen_tokens: Any = 0
) -> Tensor:
    """Stands for `compute_bias`: [1, heads, queries, keys]."""
    del device
    positions = torch.arange(queries)[:, None] + past_seen_tokens
    distances = torch.arange(keys)[None] - positions + (longest - 1)
    table: Tensor = module.bias_table  # type: ignore[assignment]
    return table[:, distances][None]


def _no_bias(*_args: Any, **_kwargs: Any) -> None:
    return None


ALL_ATTENTION_FUNCTIONS.register(NAME, attention)
