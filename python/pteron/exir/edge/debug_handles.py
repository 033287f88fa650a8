"""The debug handles that a node stands for, and where each comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

DEBUG_HANDLE = "debug_handle"
_ORIGINS = "debug_origins"
_BEFORE_EMIT = "debug_handle_before_emit"
_SOURCE_KEYS = ("stack_trace", "nn_module_stack", "from_node")


@dataclass(frozen=True)
class Origin:
    """What is kept of a node that another one replaced: its target and where in the model it came from."""

    target: Any
    meta: dict[str, Any]


def debug_handles(node: torch.fx.Node) -> tuple[int, ...]:
    """The handles of `node`: none, one, or several where it computes what several operators computed."""
    return _as_tuple(node.meta.get(_BEFORE_EMIT, node.meta.get(DEBUG_HANDLE)))


def stated_handles(node: torch.fx.Node) -> tuple[int, ...]:
    """The handles that `node` states now: once it was emitted, the index of its instruction."""
    return _as_tuple(node.meta.get(DEBUG_HANDLE))


def _as_tuple(handle: Any) -> tuple[int, ...]:
    if handle is None:
        return ()
    return tuple(handle) if isinstance(handle, (list, tuple)) else (handle,)


def number_by_instruction(node: torch.fx.Node, index: int) -> None:
    """Let the debug handle of an emitted node be the index of its instruction, as in ExecuTorch.

    `debug_handles` still gives the handles from before.
    """
    if DEBUG_HANDLE in node.meta:
        node.meta.setdefault(_BEFORE_EMIT, node.meta[DEBUG_HANDLE])
        node.meta[DEBUG_HANDLE] = index


def origin_of(node: torch.fx.Node, handle: int) -> Any:
    """The node, or the `Origin`, whose target and source line `handle` of `node` stands for."""
    return node.meta.get(_ORIGINS, {}).get(handle, node)


def stand_for(kept: torch.fx.Node, replaced: torch.fx.Node) -> None:
    """Let `kept` carry the debug handles of `replaced` after its own, each with its own source line."""
    handles = tuple(dict.fromkeys((*debug_handles(kept), *debug_handles(replaced))))
    if not handles:
        return
    origins: dict[int, Any] = dict(replaced.meta.get(_ORIGINS, {}))
    for handle in debug_handles(replaced):
        meta = {key: replaced.meta[key] for key in _SOURCE_KEYS if key in replaced.meta}
        origins.setdefault(handle, Origin(replaced.target, meta))
    origins.update(kept.meta.get(_ORIGINS, {}))
    own = set(debug_handles(kept)) - set(kept.meta.get(_ORIGINS, {}))
    kept.meta[_ORIGINS] = {handle: origin for handle, origin in origins.items() if handle not in own}
    kept.meta[DEBUG_HANDLE] = handles[0] if len(handles) == 1 else handles
