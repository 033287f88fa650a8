"""Compute on fake tensors without giving symbols the values of the example inputs."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any

import torch


class SymbolsKept:
    """A context in which symbolic extents of `values` stay symbolic.

    Some of PyTorch's meta functions read extents as numbers (`upsample_nearest2d` with scale factors is
    one). That fixes symbols to the numbers of the example, for the whole program. On exit such fixings are
    taken back and `is_fixed` is true; what was computed meanwhile holds for the example only.
    """

    def __init__(self, values: Iterable[Any]) -> None:
        self.is_fixed = False
        self._environment = _shape_environment(values)
        self._before: tuple[dict[Any, Any], dict[Any, Any], int] | None = None

    def __enter__(self) -> SymbolsKept:
        env = self._environment
        if env is not None:
            self._before = (dict(env.replacements), dict(env.var_to_range), len(env.guards))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        env = self._environment
        if env is None or self._before is None:
            return
        replacements, ranges, guards = self._before
        self.is_fixed = any(
            value.is_number for symbol, value in env.replacements.items() if symbol not in replacements
        )
        if self.is_fixed:
            env.replacements.clear()
            env.replacements.update(replacements)
            env.var_to_range.clear()
            env.var_to_range.update(ranges)
            del env.guards[guards:]
            # What symbols were simplified to is cached by these two.
            env._update_version_counter()
            env._replacements_version_counter += 1


def _shape_environment(values: Iterable[Any]) -> Any:
    for value in values:
        extents = value.shape if isinstance(value, torch.Tensor) else (value,)
        for extent in extents:
            if isinstance(extent, torch.SymInt):
                return extent.node.shape_env
    return None
