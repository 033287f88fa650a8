"""Zeros around an image become the padding of the convolutions that read it, before anything is quantised.

Models with TensorFlow's rules for borders (MobileNet, EfficientNet) pad before every convolution, often by
nothing. What reads the pad would be no convolution, so the result before it stayed in float.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from pteron.quant.integer_regions import CONVOLUTIONS, is_pad_by_zeros

_aten = torch.ops.aten
#: Position of the padding among a convolution's arguments.
_PADDING = 4


def fold_padding(graph: Graph) -> None:
    """Give the pads of `graph` (captured by `torch.export`, before it is decomposed) to convolutions.

    Pads by nothing go. Others go where only convolutions read them that have as many zeros on both sides of
    each dimension; what a convolution has itself is added.
    """
    pads = [node for node in graph.nodes if is_pad_by_zeros(node)]
    for node in pads:
        if all(isinstance(each, int) and each == 0 for each in node.args[1]):
            node.replace_all_uses_with(node.args[0])
    # Of pads of pads the last one first.
    for node in reversed(pads):
        margins = _margins(node.args[1])
        new = [_added(user, node, margins) for user in node.users]
        if not all(new):
            continue
        for user, padding in zip(list(node.users), new, strict=True):
            # Without them: no bias, steps of one, no padding.
            args: list[Any] = [*user.args, *([None, [1], [0]][len(user.args) - 2 :])]
            args[0], args[_PADDING] = node.args[0], padding
            user.args = tuple(args)
        graph.erase_node(node)


def _margins(pads: Any) -> list[int] | None:
    """What is added on each side of each dimension, outermost first; None where sides differ."""
    pairs = list(zip(pads[::2], pads[1::2], strict=True))[::-1]
    is_alike = all(isinstance(a, int) and isinstance(b, int) and a == b >= 0 for a, b in pairs)
    return [a for a, _ in pairs] if is_alike else None


def _added(user: Node, pad: Node, margins: list[int] | None) -> list[int] | None:
    """The padding of the convolution `user` with these margins; None if it is none, or its padding a word."""
    if margins is None or user.target not in CONVOLUTIONS or user.args[0] is not pad or user.kwargs:
        return None
    own: Any = user.args[_PADDING] if len(user.args) > _PADDING else 0
    dimensions = 1 if user.target is _aten.conv1d.default else 2
    own = [own] * dimensions if isinstance(own, int) else own
    if isinstance(own, str) or not all(isinstance(each, int) for each in own):
        return None
    own = list(own) * dimensions if len(own) == 1 else list(own)
    outer = len(margins) - dimensions
    if any(margins[: max(outer, 0)]):
        return None
    inner = [0] * max(-outer, 0) + margins[max(outer, 0) :]
    return [a + b for a, b in zip(own, inner, strict=True)]
