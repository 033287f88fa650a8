"""ExecuTorch's operators that write rows of a cache, said in PyTorch's, which update buffers in place."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload

_ATEN = torch.ops.aten

# What an operator computes: its result, where that means anything, and the new values of the caches in the
# order of its schema.
Values = tuple[torch.fx.Node | None, list[torch.fx.Node]]


def cache_updates(op: OpOverload) -> Callable[[torch.fx.Graph, dict[str, Any]], Values] | None:
    """How to write nodes that compute what `op` does; None for operators that write no cache."""
    return _RULES.get(op._schema.name) if op._overloadname == "default" else None


def _call(graph: torch.fx.Graph, target: Any, args: tuple[Any, ...], value: Any) -> torch.fx.Node:
    node = graph.call_function(target, args)
    node.meta["val"] = value
    return node


def _value(argument: Any) -> Any:
    return argument.meta["val"] if isinstance(argument, torch.fx.Node) else argument


def _rows_put(graph: torch.fx.Graph, value: Any, cache: torch.fx.Node, start: Any) -> torch.fx.Node:
    """`cache` with the rows of `value` from `start` on."""
    rows: Any = _value(value).shape[1]
    end: Any = _value(start) + rows
    length = rows
    if isinstance(rows, torch.SymInt):
        length = _call(graph, _ATEN.sym_size.int, (value, 1), rows)
    if isinstance(start, torch.fx.Node) or isinstance(length, torch.fx.Node):
        end = _call(graph, operator.add, (start, length), end)
    return _call(graph, _ATEN.slice_scatter.default, (cache, value, 1, start, end), _value(cache))


def _update_cache(graph: torch.fx.Graph, given: dict[str, Any]) -> Values:
    return None, [_rows_put(graph, given["value"], given["cache"], given["start_pos"])]


def _update_cache_with_indices(graph: torch.fx.Graph, given: dict[str, Any]) -> Values:
    value, cache, indices = given["value"], given["cache"], given["indices"]
    batch = _value(cache).shape[0]
    fake = _value(indices)
    if batch == 1:
        chosen: list[Any] = [None, _call(graph, _ATEN.select.int, (indices, 0, 0), fake[0])]
    else:
        with fake.fake_mode:
            numbers = torch.arange(batch)
            column = numbers.unsqueeze(1)
        counted = _call(graph, _ATEN.arange.default, (batch,), numbers)
        chosen = [_call(graph, _ATEN.unsqueeze.default, (counted, 1), column), indices]
    return None, [_call(graph, _ATEN.index_put.default, (cache, chosen, value), _value(cache))]


def _sdpa_with_kv_cache(graph: torch.fx.Graph, given: dict[str, Any]) -> Values:
    start, query = given["start_pos"], given["query"]
    caches = [_rows_put(graph, given[name], given[f"{name}_cache"], start) for name in ("key", "value")]
    settings = (given.get("attn_mask"), given.get("drpout_p", 0.0), given.get("is_causal", False))
    attention = torch.ops.llama.custom_sdpa.default
    arguments = (query, *caches, start, *settings, given.get("scale"))
    return _call(graph, attention, arguments, _value(query)), caches


_RULES: dict[str, Callable[[torch.fx.Graph, dict[str, Any]], Values]] = {
    "llama::update_cache": _update_cache,
    "llama::update_cache_with_indices": _update_cache_with_indices,
    "llama::sdpa_with_kv_cache": _sdpa_with_kv_cache,
}
