"""Operators that state the memory order of their result as an explicit list of dimensions.

`dim_order` names the dimensions from outermost to innermost: `[0, 1, 2, 3]` is contiguous, `[0, 2, 3, 1]`
is channels last. A program file stores tensors this way, so operators that take a `memory_format` in
PyTorch (`_to_copy`, `clone`, `empty`) are replaced by these three before a program is emitted. Without a
`dim_order` the input's order is kept.

The operators are shown and emitted under `dim_order_ops`; the torch library behind them has a name of its
own, so that another package which defines that namespace can be imported into the same process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

NAMESPACE = "dim_order_ops"
LIBRARY_NAMESPACE = "pteron_dim_order"

_SCHEMAS = (
    "_to_dim_order_copy(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
    "bool? pin_memory=None, bool non_blocking=False, int[]? dim_order=None) -> Tensor",
    "_to_dim_order_copy.out(Tensor self, *, bool non_blocking=False, int[]? dim_order=None, Tensor(a!) out) "
    "-> Tensor(a!)",
    "_empty_dim_order(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
    "bool? pin_memory=None, int[]? dim_order=None) -> Tensor",
    "_empty_dim_order.out(SymInt[] size, *, int[]? dim_order=None, Tensor(a!) out) -> Tensor(a!)",
    "_clone_dim_order(Tensor self, *, bool non_blocking=False, int[]? dim_order=None) -> Tensor",
    "_clone_dim_order.out(Tensor self, *, bool non_blocking=False, int[]? dim_order=None, Tensor(a!) out) "
    "-> Tensor(a!)",
)

_CHANNELS_LAST = {4: [0, 2, 3, 1], 5: [0, 2, 3, 4, 1]}
_CHANNELS_LAST_FORMAT = {4: torch.channels_last, 5: torch.channels_last_3d}


def memory_format_of(dim_order: Sequence[int] | None) -> torch.memory_format:
    """The PyTorch memory format that a dimension order means; ValueError where PyTorch has none."""
    if dim_order is None:
        return torch.preserve_format
    order = list(dim_order)
    if order == list(range(len(order))):
        return torch.contiguous_format
    if order == _CHANNELS_LAST.get(len(order)):
        return _CHANNELS_LAST_FORMAT[len(order)]
    raise ValueError(
        f"dimension order {order} has no PyTorch memory format; supported: contiguous, [0, 2, 3, 1], "
        "[0, 2, 3, 4, 1]"
    )


def _to_dim_order_copy(
    self: torch.Tensor, *, dim_order: list[int] | None = None, **options: Any
) -> torch.Tensor:
    copied: torch.Tensor = torch.ops.aten._to_copy(self, memory_format=memory_format_of(dim_order), **options)
    return copied


def _clone_dim_order(
    self: torch.Tensor, *, non_blocking: bool = False, dim_order: list[int] | None = None
) -> torch.Tensor:
    cloned: torch.Tensor = torch.ops.aten.clone(self, memory_format=memory_format_of(dim_order))
    return cloned


def _empty_dim_order(size: list[int], *, dim_order: list[int] | None = None, **options: Any) -> torch.Tensor:
    order = list(range(len(size))) if dim_order is None else dim_order
    made: torch.Tensor = torch.ops.aten.empty(size, memory_format=memory_format_of(order), **options)
    return made


def _copy_into(out: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    if out.shape != value.shape:
        out.resize_(value.shape)
    return out.copy_(value)


def _to_dim_order_copy_out(
    self: torch.Tensor, *, out: torch.Tensor, non_blocking: bool = False, dim_order: list[int] | None = None
) -> torch.Tensor:
    return _copy_into(out, self)


def _empty_dim_order_out(
    size: list[int], *, out: torch.Tensor, dim_order: list[int] | None = None
) -> torch.Tensor:
    return out.resize_(size)


_IMPLEMENTATIONS = {
    "_to_dim_order_copy": _to_dim_order_copy,
    "_to_dim_order_copy.out": _to_dim_order_copy_out,
    "_empty_dim_order": _empty_dim_order,
    "_empty_dim_order.out": _empty_dim_order_out,
    "_clone_dim_order": _clone_dim_order,
    "_clone_dim_order.out": _to_dim_order_copy_out,
}


def _register() -> Any:
    # torch.library has no annotations.
    library: Any = torch.library.Library(LIBRARY_NAMESPACE, "DEF")  # type: ignore[no-untyped-call]
    for schema in _SCHEMAS:
        library.define(schema)
    for name, implementation in _IMPLEMENTATIONS.items():
        library.impl(name, implementation, "CompositeExplicitAutograd")
    return library


# Registrations live as long as the library object.
_library = _register()
