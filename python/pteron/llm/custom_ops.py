"""ExecuTorch's operators of language models, `torch.ops.llama`, without ExecuTorch: caches that are written
in place, and attention over their filled part.

Import this module before a model that calls them is captured. Where ExecuTorch is installed it imports
ExecuTorch's own, which fail on operators that are registered already. Shapes: queries and new rows
[B, S, heads, D], caches [B, capacity, heads, D]. The functions compute what the runtime's kernels do, for
capture and for comparison, and raise `RuntimeError` for what those refuse.
"""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Callable
from typing import Any

import torch

_SETTINGS = (
    "SymInt start_pos, Tensor? attn_mask=None, float drpout_p=0.0, bool is_causal=False, float? scale=None"
)
_QUANTISED = (
    "Tensor? q_zero_points=None, Tensor? q_scales=None, Tensor? k_zero_points=None, Tensor? k_scales=None, "
    "Tensor? v_zero_points=None, Tensor? v_scales=None, bool is_seq_at_dim_2=False"
)
_ARGUMENTS = {
    "update_cache": "Tensor value, Tensor(a!) cache, SymInt start_pos",
    "update_cache_with_indices": "Tensor value, Tensor(a!) cache, SymInt start_pos, Tensor indices",
    "custom_sdpa": f"Tensor query, Tensor key, Tensor value, {_SETTINGS}",
    "sdpa_with_kv_cache": "Tensor query, Tensor key, Tensor value, Tensor(a!) key_cache, "
    "Tensor(b!) value_cache, " + _SETTINGS.replace("start_pos,", "start_pos, SymInt seq_len,"),
    "custom_quantized_sdpa": f"Tensor query, Tensor key, Tensor value, {_SETTINGS}, {_QUANTISED}",
    "fast_hadamard_transform": "Tensor mat",
    "fallback": "Tensor input",
}
# The out variants' own marks, behind those of the caches, and the one output that is not called `out`.
_MARKS = {"sdpa_with_kv_cache": "c", "update_cache": "b", "update_cache_with_indices": "b"}
_OUTPUTS = {"fallback": "output"}
# The first rows of the circulant blocks of Williamson's Hadamard matrix of order 28, a bit for each minus.
_BLOCKS = (0b1111110, 0b0111100, 0b1011010, 0b1100110)


def update_cache(value: torch.Tensor, cache: torch.Tensor, start_pos: int) -> torch.Tensor:
    """Writes `value` to the rows of `cache` from `start_pos` on; the result means nothing."""
    _check_room(start_pos, value.shape[1], cache.shape[1])
    cache[:, start_pos : start_pos + value.shape[1]] = value
    return value.new_zeros((1,))


def update_cache_with_indices(
    value: torch.Tensor, cache: torch.Tensor, start_pos: int, indices: torch.Tensor
) -> torch.Tensor:
    """Writes row `i` of `value` to row `indices[b, i]` of `cache`, in order; the result means nothing."""
    if bool(((indices < 0) | (indices >= cache.shape[1])).any()):
        raise RuntimeError(
            f"a position is outside of the {cache.shape[1]} rows of the cache: {indices.tolist()}"
        )
    for batch, row in ((b, i) for b in range(value.shape[0]) for i in range(value.shape[1])):
        cache[batch, indices[batch, row]] = value[batch, row]
    return value.new_zeros((1,))


def custom_sdpa(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    start_pos: int,
    attn_mask: torch.Tensor | None = None,
    drpout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> torch.Tensor:
    """Attention over the first `start_pos + S` keys, or over all with a mask [S, capacity]."""
    _check_settings(attn_mask, drpout_p, is_causal)
    rows, group = query.shape[1], query.shape[2] // key.shape[2]
    if attn_mask is None:
        _check_room(start_pos, rows, key.shape[1])
        key, value = key[:, : start_pos + rows], value[:, : start_pos + rows]
    heads = [tensor.float().repeat_interleave(group, 2) for tensor in (key, value)]
    scores = torch.einsum("bshd,bthd->bhst", query.float(), heads[0])
    scores = scores * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        later = torch.ones(rows, start_pos + rows, dtype=torch.bool).triu(start_pos + 1)
        scores = scores.masked_fill(later, -math.inf)
    if attn_mask is not None:
        scores = scores + attn_mask
    return torch.einsum("bhst,bthd->bshd", scores.softmax(-1), heads[1]).to(query.dtype).contiguous()


def sdpa_with_kv_cache(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    start_pos: int,
    seq_len: int,
    attn_mask: torch.Tensor | None = None,
    drpout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> torch.Tensor:
    """`update_cache` of both caches, then `custom_sdpa` over them."""
    if seq_len != query.shape[1]:
        raise RuntimeError(f"seq_len is {seq_len} for {query.shape[1]} queries")
    update_cache(key, key_cache, start_pos)
    update_cache(value, value_cache, start_pos)
    return custom_sdpa(query, key_cache, value_cache, start_pos, attn_mask, drpout_p, is_causal, scale)


def custom_quantized_sdpa(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    start_pos: int,
    attn_mask: torch.Tensor | None = None,
    drpout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    q_zero_points: torch.Tensor | None = None,
    q_scales: torch.Tensor | None = None,
    k_zero_points: torch.Tensor | None = None,
    k_scales: torch.Tensor | None = None,
    v_zero_points: torch.Tensor | None = None,
    v_scales: torch.Tensor | None = None,
    is_seq_at_dim_2: bool = False,
) -> torch.Tensor:
    """`custom_sdpa` of what int8 numbers stand for; with `is_seq_at_dim_2` heads stand before rows."""
    meant = []
    for numbers, zero_points, scales in (
        (query, q_zero_points, q_scales),
        (key, k_zero_points, k_scales),
        (value, v_zero_points, v_scales),
    ):
        if zero_points is None or scales is None:
            raise RuntimeError("queries, keys and values need scales and zero points")
        tensor = (numbers.float() - zero_points.float()) * scales
        meant.append(tensor.transpose(1, 2) if is_seq_at_dim_2 else tensor)
    found = custom_sdpa(meant[0], meant[1], meant[2], start_pos, attn_mask, drpout_p, is_causal, scale)
    return found.transpose(1, 2).contiguous() if is_seq_at_dim_2 else found


def fast_hadamard_transform(mat: torch.Tensor) -> torch.Tensor:
    """The Hadamard transform of the last dimension, 2^k or 28 * 2^k, times 2^(-k/2)."""
    size = mat.shape[-1]
    parts = 1 if size and size & (size - 1) == 0 else 28
    part = size // parts
    if size == 0 or size % parts or part & (part - 1):
        raise RuntimeError(f"the last extent is 2^k or 28 * 2^k, not {size}")
    found, half = mat.float().reshape(-1, parts, part), 1
    while half < part:
        pairs = found.reshape(-1, parts, part // (2 * half), 2, half)
        low, high = pairs.unbind(3)
        found = torch.stack((low + high, low - high), 3).reshape(-1, parts, part)
        half *= 2
    if parts == 28:
        found = torch.einsum("ij,njk->nik", _hadamard_28(), found)
    return (found / math.sqrt(part)).reshape(mat.shape).to(mat.dtype)


def fallback(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """A copy."""
    return input.clone()


def _hadamard_28() -> torch.Tensor:
    rows = [torch.tensor([-1.0 if bits >> at & 1 else 1.0 for at in range(7)]) for bits in _BLOCKS]
    a, b, c, d = (torch.stack([row.roll(by) for by in range(7)]) for row in rows)
    blocks = ((a, b, c, d), (-b, a, -d, c), (-c, d, a, -b), (-d, -c, b, a))
    return torch.cat([torch.cat(row, 1) for row in blocks])


def _check_room(start_pos: int, rows: int, capacity: int) -> None:
    if not 0 <= start_pos <= capacity - rows:
        raise RuntimeError(f"{rows} rows from {start_pos} on do not fit into a cache of {capacity}")


def _check_settings(attn_mask: torch.Tensor | None, drpout_p: float, is_causal: bool) -> None:
    if drpout_p != 0:
        raise RuntimeError("attention with dropout does not run")
    if attn_mask is not None and is_causal:
        raise RuntimeError("attention takes a mask or is causal, not both")


def _fake_update(
    value: torch.Tensor, cache: torch.Tensor, start_pos: Any, *rest: torch.Tensor
) -> torch.Tensor:
    # torch has no annotations of it.
    check: Any = torch._check
    check(start_pos >= 0)
    if not rest:
        check(start_pos + value.shape[1] <= cache.shape[1])
    return value.new_empty((1,))


def _fake_like_first(first: torch.Tensor, *_args: Any, **_settings: Any) -> torch.Tensor:
    return first.new_empty(first.shape)


def _fake_quantised(query: torch.Tensor, *_args: Any, **_settings: Any) -> torch.Tensor:
    return query.new_empty(query.shape, dtype=torch.float32)


_COMPUTED: dict[str, tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor]]] = {
    "update_cache": (update_cache, _fake_update),
    "update_cache_with_indices": (update_cache_with_indices, _fake_update),
    "custom_sdpa": (custom_sdpa, _fake_like_first),
    "sdpa_with_kv_cache": (sdpa_with_kv_cache, _fake_like_first),
    "custom_quantized_sdpa": (custom_quantized_sdpa, _fake_quantised),
    "fast_hadamard_transform": (fast_hadamard_transform, _fake_like_first),
    "fallback": (fallback, _fake_like_first),
}


def _into(compute: Callable[..., torch.Tensor], name: str) -> Callable[..., torch.Tensor]:
    def write(*args: Any, **kwargs: Any) -> torch.Tensor:
        out: torch.Tensor = kwargs.pop(name)
        result = compute(*args, **kwargs)
        return out.resize_(result.shape).copy_(result)

    return write


def _register() -> Any:
    """The library of what nobody has registered: of all operators where ExecuTorch is not installed."""
    for theirs in ("op_fallback", "custom_ops"):
        with contextlib.suppress(ImportError):
            importlib.import_module(f"executorch.extension.llm.custom_ops.{theirs}")
    # torch.library has no annotations.
    library: Any = torch.library.Library("llama", "FRAGMENT")  # type: ignore[no-untyped-call]
    for name, (compute, fake) in _COMPUTED.items():
        if hasattr(torch.ops.llama, name):
            continue
        mark, output = _MARKS.get(name, "a"), _OUTPUTS.get(name, "out")
        library.define(f"{name}({_ARGUMENTS[name]}) -> Tensor")
        library.impl(name, compute, "CPU")
        torch.library.register_fake(f"llama::{name}", fake, lib=library)
        library.define(f"{name}.out({_ARGUMENTS[name]}, *, Tensor({mark}!) {output}) -> Tensor({mark}!)")
        library.impl(f"{name}.out", _into(compute, output), "CPU")
    return library


# Registrations live as long as the library object.
_library = _register()
