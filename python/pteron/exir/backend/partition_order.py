"""The order of operators in a graph from which some partitions are cut, as ExecuTorch has it."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Mapping

import torch

#: What stands as early as it can: arithmetic on extents, and checks before anything that depends on data.
_EARLY = frozenset(
    {
        *(operator.add, operator.mul, operator.sub, operator.floordiv, operator.truediv, operator.mod),
        *(operator.le, operator.lt, operator.ge, operator.gt, operator.eq, operator.ne),
        torch.ops.aten.sym_constrain_range.default,
        torch.ops.aten.sym_constrain_range_for_size.default,
        torch.ops.aten._assert_async.msg,
        torch.ops.aten._assert_scalar.default,
        torch.ops.aten.scalar_tensor.default,
    }
)


def breadth_first(graph: torch.fx.Graph, before: Mapping[torch.fx.Node, int]) -> dict[torch.fx.Node, int]:
    """The position of every node when the graph is sorted breadth first.

    ExecuTorch sorts the graph in this way after each partition that it cuts, so operators that do not depend
    on each other change places in later partitions. Backends write blobs in the order of the partition:
    equal orders make equal blobs.

    Args:
        graph: in any order.
        before: positions before; nodes that are not in it, which the last cut made, come last.
    """
    place = {node: before.get(node, len(before) + index) for index, node in enumerate(graph.nodes)}
    waiting = {node: len(node.all_input_nodes) for node in place}
    ready = deque(node for node in sorted(place, key=place.__getitem__) if waiting[node] == 0)
    found: dict[torch.fx.Node, int] = {}
    while ready:
        node = ready.popleft()
        found[node] = len(found)
        for user in sorted(node.users, key=place.__getitem__):
            waiting[user] -= 1
            if waiting[user] == 0:
                is_early = user.op == "call_function" and user.target in _EARLY
                (ready.appendleft if is_early else ready.append)(user)
    return found
