"""Which operators of a captured graph compute with integers once it is quantised.

Products (convolutions, linear layers, matrix products) always do. Sums, concatenation, pooling and
activations do between operators that do: a sum that only a layer norm reads is left in float, as integers
would cost accuracy there and gain nothing. What only moves elements takes over what stands before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Graph, Node

aten = torch.ops.aten

CONVOLUTIONS = frozenset({aten.conv1d.default, aten.conv1d.padding, aten.conv2d.default, aten.conv2d.padding})
LINEAR = aten.linear.default
MATMULS = frozenset({aten.matmul.default, aten.bmm.default})
#: Elementwise calls of two tensors.
BINARY = frozenset({aten.add.Tensor, aten.add_.Tensor, aten.mul.Tensor, aten.mul_.Tensor})
CAT = aten.cat.default
#: The result has elements of the argument alone, so both have one scale.
CHOOSES = frozenset({aten.max_pool2d.default, aten.max_pool1d.default})
AVERAGES = frozenset(
    {
        aten.adaptive_avg_pool1d.default,
        aten.adaptive_avg_pool2d.default,
        aten.avg_pool1d.default,
        aten.avg_pool2d.default,
        aten.mean.dim,
    }
)
#: Functions of one element: a table of 256 results.
FUNCTIONS = frozenset(
    {
        aten.sigmoid.default,
        aten.tanh.default,
        aten.silu.default,
        aten.silu_.default,
        aten.gelu.default,
        aten.hardswish.default,
        aten.hardswish_.default,
        aten.hardsigmoid.default,
        aten.hardsigmoid_.default,
        aten.elu.default,
        aten.leaky_relu.default,
        aten.leaky_relu_.default,
    }
)
#: What is part of the product or the sum before it.
CLAMPS = frozenset(
    {
        aten.relu.default,
        aten.relu_.default,
        aten.relu6.default,
        aten.relu6_.default,
        aten.hardtanh.default,
        aten.hardtanh_.default,
    }
)
NORMS = frozenset({aten.batch_norm.default})
MOVES = frozenset(
    {
        aten.view.default,
        aten.reshape.default,
        aten.flatten.using_ints,
        aten.permute.default,
        aten.transpose.int,
        aten.t.default,
        aten.squeeze.default,
        aten.squeeze.dim,
        aten.squeeze.dims,
        aten.unsqueeze.default,
        aten.slice.Tensor,
        aten.select.int,
        aten.expand.default,
        aten.contiguous.default,
        aten.clone.default,
        aten.dropout.default,
        aten.dropout_.default,
        aten.detach.default,
    }
)
PADS = frozenset({aten.pad.default, aten.constant_pad_nd.default})


@dataclass
class Region:
    """An operator that computes with integers, and what is fused behind it.

    `node`: the operator. `inputs`: its activations, in order. `last`: `node`, or the batch norm and clamp
    that belong to it. `is_output_read`: whether an operator with integers reads the result.
    """

    node: Node
    inputs: list[Node]
    last: Node
    is_output_read: bool = field(default=True)


def integer_regions(graph: Graph, is_wanted: Callable[[Node], bool]) -> list[Region]:
    """The operators of `graph` (captured by `torch.export`, before it is decomposed) that compute with
    integers, in order. `is_wanted`: says of an operator whether the caller lets it.
    """
    found: dict[Node, Region] = {}
    fused: set[Node] = set()
    for node in graph.nodes:
        inputs = [] if node in fused else _activations(node)
        if inputs and is_wanted(node) and all(map(_is_float, [node, *inputs])):
            found[node] = Region(node, inputs, _fused_behind(node))
            fused.add(found[node].last)
    ends = {region.last: node for node, region in found.items()}
    dropped = True
    while dropped:
        dropped = False
        for node, region in list(found.items()):
            if not _is_product(node) and not _is_between(region, found, ends):
                del found[node], ends[region.last]
                dropped = True
    for region in found.values():
        region.is_output_read = any(reader in found for reader in _readers(region.last))
    return list(found.values())


def is_pad_by_zeros(node: Node) -> bool:
    """Does it put zeros, or nothing, around a tensor?"""
    rest: Any = (*node.args[2:], *node.kwargs.values())
    return node.target in PADS and all(each is None or each == "constant" or each == 0 for each in rest)


def moves_behind(node: Node) -> Iterator[Node]:
    """What only moves elements of `node`, in graph order."""
    for user in node.users:
        if _is_move(user) and user.args[0] is node:
            yield user
            yield from moves_behind(user)


def _is_move(node: Node) -> bool:
    """Does it only move elements? Zeros around an image are part of that: every scheme has a zero."""
    return node.op == "call_function" and (node.target in MOVES or is_pad_by_zeros(node))


def _is_product(node: Node) -> bool:
    return node.target in CONVOLUTIONS or node.target is LINEAR or node.target in MATMULS


def _activations(node: Node) -> list[Node]:
    if node.op != "call_function":
        return []
    args: Any = node.args
    if node.target in CONVOLUTIONS or node.target is LINEAR:
        return [args[0]] if _is_weight(args[1]) else []
    if node.target in MATMULS or node.target in BINARY:
        both = list(args[:2])
        is_usable = all(isinstance(each, Node) and each.op != "get_attr" for each in both)
        return both if is_usable and _is_worth_it(node, both) else []
    if node.target is CAT:
        return list(args[0])
    return [args[0]] if node.target in CHOOSES | AVERAGES | FUNCTIONS | CLAMPS else []


def _is_weight(node: Any) -> bool:
    return isinstance(node, Node) and node.op == "get_attr" and len(node.users) == 1


def _is_worth_it(node: Node, operands: list[Node]) -> bool:
    """Not: `x * rsqrt(...)` of norms, whose largest element would set the scale of all; sums of masks."""
    if node.target in MATMULS:
        return True
    statistics = (aten.rsqrt.default, aten.pow.Tensor_Scalar, aten.div.Tensor, aten.where.self)
    return bool(node.kwargs.get("alpha", 1) == 1) and all(each.target not in statistics for each in operands)


def _is_float(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype == torch.float32


def _fused_behind(node: Node) -> Node:
    last = node
    if node.target in CONVOLUTIONS or node.target is LINEAR:
        last = _only_reader(last, NORMS)
    if node.target not in CLAMPS and (_is_product(node) or node.target in BINARY):
        last = _only_reader(last, CLAMPS)
    return last


def _only_reader(node: Node, targets: frozenset[Any]) -> Node:
    users = list(node.users)
    return users[0] if len(users) == 1 and users[0].target in targets else node


def _readers(node: Node) -> Iterator[Node]:
    """Who reads `node`, through what only moves elements."""
    for user in node.users:
        if _is_move(user):
            yield from _readers(user)
        else:
            yield user


def _source(node: Node) -> Node:
    while _is_move(node):
        before = node.args[0]
        assert isinstance(before, Node)  # moves have one tensor
        node = before
    return node


def _is_between(region: Region, found: dict[Node, Region], ends: dict[Node, Node]) -> bool:
    sources = [_source(each) for each in region.inputs]
    comes_from = all(each in ends or each.op == "placeholder" for each in sources)
    return (
        comes_from
        and any(each in ends for each in sources)
        and any(reader in found for reader in _readers(region.last))
    )
