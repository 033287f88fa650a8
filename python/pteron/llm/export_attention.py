"""Attention over the cache without copies of it, and the masks that go with it.

Both are registered with transformers under `NAME`. Heads that share keys and values become rows of one
product, so keys and values are never expanded; a mask has its rows as often.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from pteron.errors import ExportError
from pteron.llm.export_ragged import shared_rows

NAME = "pteron_cache"

_calls: ContextVar[list[str] | None] = ContextVar("calls", default=None)


@contextmanager
def recorded_calls() -> Iterator[list[str]]:
    """The classes of the modules that call `attention` meanwhile."""
    names: list[str] = []
    token = _calls.set(names)
    try:
        yield names
    finally:
        _calls.reset(token)


def causal_mask(
    *,
    kv_length: int,
    q_offset: Tensor,
    mask_function: Callable[..., Tensor],
    kv_offset: int | Tensor = 0,
    attention_mask: Tensor | None = None,
    dtype: torch.dtype = torch.float32,
    **_kwargs: Any,
) -> Tensor:
    """0 where a query sees a key, else -inf: [1, 1, tokens, kv_length].

    `q_offset`: positions of the queries, int64 [tokens]. `mask_function`: causal, within a window or in
    chunks, by positions. `kv_offset`: positions of the keys, int64 [kv_length], those below 0 of none; 0:
    they lie in order.
    """
    if attention_mask is not None:
        raise ExportError("llm.export: the model makes a padding mask of its own, which has no place here")
    first, rows = torch.zeros((), dtype=torch.int64), shared_rows()
    positions = torch.arange(kv_length) if rows is None else rows.positions
    if isinstance(kv_offset, Tensor):
        positions = kv_offset
    seen = mask_function(first, first, q_offset[:, None], positions[None, :])
    if isinstance(kv_offset, Tensor):
        seen = seen & (positions[None, :] >= 0)
    if rows is not None:
        seen = rows.restrict(seen)
    return torch.where(seen, 0.0, -math.inf).to(dtype)[None, None]


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """[batch, tokens, heads, value dim] of queries [batch, heads, tokens, dim] over a whole cache.

    ExportError for what a family adds to attention that is not known here.
    """
    note(module)
    unknown = [name for name in ("s_aux", "position_bias", "cache") if kwargs.get(name) is not None]
    if unknown or attention_mask is None:
        raise ExportError(
            f"llm.export: {type(module).__name__} computes attention with {unknown or 'no mask'}, which "
            "the exporter does not know",
            hint="export the model with pteron.export and torch.export's own recipe for it",
        )
    batch, heads, tokens, dim = query.shape
    key_heads = key.shape[1]
    shared = heads // key_heads
    # Before the product: there the run half takes the factor into its attention.
    scaled = query * (dim**-0.5 if scaling is None else scaling)
    rows = scaled.clone(memory_format=torch.contiguous_format).view(batch, key_heads, shared * tokens, dim)
    scores = torch.matmul(rows, key.transpose(2, 3))
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    mask = attention_mask if shared == 1 else attention_mask.repeat(1, 1, shared, 1)
    weights = torch.softmax(scores + mask, dim=-1, dtype=torch.float32).to(query.dtype)
    result = torch.matmul(weights, value).view(batch, key_heads, shared, tokens, value.shape[-1])
    return result.permute(0, 3, 1, 2, 4).flatten(2, 3), None


def note(module: nn.Module) -> None:
    """Adds the class of a module to those that `recorded_calls` collects."""
    names = _calls.get()
    if names is not None:
        names.append(type(module).__name__)


ALL_ATTENTION_FUNCTIONS.register(NAME, attention)
ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, causal_mask)
