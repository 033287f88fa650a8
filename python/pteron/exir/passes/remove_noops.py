"""Remove operators that return exactly what they were given."""

from __future__ import annotations

import torch
from torch._ops import OpOverload

from pteron.exir.passes.exported_program_pass import each_graph

# Each returns its operand where dtype, shape and strides stay the same.
NOOPS_WITHOUT_CHANGE: frozenset[OpOverload] = frozenset(
    {
        torch.ops.aten.alias_copy.default,
        torch.ops.aten.detach_copy.default,
        torch.ops.aten.lift_fresh_copy.default,
        torch.ops.aten.clone.default,
        torch.ops.aten._to_copy.default,
        torch.ops.aten.view_copy.default,
        torch.ops.aten.expand_copy.default,
        torch.ops.aten.slice_copy.Tensor,
    }
)


#: Those of them that models state, and that ExecuTorch leaves in an edge graph.
STATED_NOOPS: frozenset[OpOverload] = frozenset(
    {torch.ops.aten.clone.default, torch.ops.aten.view_copy.default, torch.ops.aten.expand_copy.default}
)


def is_same_layout(before: object, after: object) -> bool:
    """Whether two tensor values have one dtype, device, shape and stride; False for anything else."""
    if not isinstance(before, torch.Tensor) or not isinstance(after, torch.Tensor):
        return False
    if before.dtype != after.dtype or before.device != after.device or before.dim() != after.dim():
        return False
    # Symbolic extents are compared as expressions: a guard must not be added here.
    pairs = [*zip(before.shape, after.shape, strict=True), *zip(before.stride(), after.stride(), strict=True)]
    return all(str(left) == str(right) for left, right in pairs)


@each_graph
def remove_noops(module: torch.fx.GraphModule) -> None:
    """Remove copies, casts and slices of `program` that change neither data nor layout, in place.

    A copy that is returned stays: the caller was promised a fresh tensor, and a copy of a buffer holds the
    value from before the buffer is updated.
    """
    _remove(module, NOOPS_WITHOUT_CHANGE - STATED_NOOPS)


@each_graph
def remove_stated_noops(module: torch.fx.GraphModule) -> None:
    """Remove clones, expansions and reshapes of `program` that change neither data nor layout, in place, by
    the rules of `remove_noops`. They would split partitions of backends that do not take them.
    """
    _remove(module, STATED_NOOPS)


def _remove(module: torch.fx.GraphModule, operators: frozenset[OpOverload]) -> None:
    for node in module.graph.nodes:
        if node.op != "call_function" or node.target not in operators:
            continue
        source = node.args[0]
        if not isinstance(source, torch.fx.Node) or any(user.op == "output" for user in node.users):
            continue
        if is_same_layout(source.meta.get("val"), node.meta.get("val")):
            node.replace_all_uses_with(source)
            module.graph.erase_node(node)
