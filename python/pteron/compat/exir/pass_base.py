"""The names of `exir.pass_base` beside its classes: what annotations of passes say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx.passes.infra.pass_base import PassBase, PassResult

from pteron.compat.exir.passes.rewrite import map_args
from pteron.exir.passes.proxy_value import PROTECTED_KEYS

__all__ = [
    "PROTECTED_KEYS",
    "ArgSchema",
    "Argument",
    "Fn",
    "NodeMetadataValue",
    "PassBase",
    "PassResult",
    "PassType",
    "Value",
    "map_args",
]

Argument = Any
Fn = Callable[..., Any]
NodeMetadataValue = Any
PassType = Callable[[torch.fx.GraphModule], PassResult | None]
Value = Any


@dataclass(frozen=True)
class ArgSchema:
    """What `map_args` tells of an argument that no operator schema describes."""

    name: str
    kwarg_only: bool
    type: Any
