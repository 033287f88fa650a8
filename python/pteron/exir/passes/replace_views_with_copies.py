"""Replace operators whose result aliases their input by the `_copy` operators that return a fresh tensor."""

from __future__ import annotations

import torch
from torch._ops import OpOverload

from pteron.errors import ExportError
from pteron.exir.edge.source_location import source_location
from pteron.exir.passes.exported_program_pass import each_graph

_UNSAFE_VIEW = torch.ops.aten._unsafe_view.default


def _returns_alias(op: OpOverload) -> bool:
    arguments = op._schema.arguments
    alias = arguments[0].alias_info if arguments else None
    return alias is not None and not alias.is_write


def _copy_variant(op: OpOverload) -> OpOverload | None:
    packet = getattr(getattr(torch.ops, op.namespace), op._schema.name.split("::")[1] + "_copy", None)
    return None if packet is None else getattr(packet, op._overloadname, None)


@each_graph
def replace_views_with_copies(module: torch.fx.GraphModule) -> None:
    """Give every view operator of `program` a result of its own, in place.

    Memory planning must see each value as a value; `elide_views` makes views share memory again afterwards.
    Raises `ExportError` for a view operator without a `_copy` variant.
    """
    for node in module.graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, OpOverload):
            continue
        if node.target is _UNSAFE_VIEW:
            node.target = torch.ops.aten.view_copy.default
        elif _returns_alias(node.target):
            copy = _copy_variant(node.target)
            if copy is None:
                raise ExportError(
                    f"{node.target} returns a view of its input and has no _copy variant: "
                    f"{node.format_node()} at {source_location(node)}; use an operator that has one",
                    operator=str(node.target),
                    source_line=str(source_location(node)),
                    hint="rewrite the model with view, permute, slice, select, expand or split",
                )
            node.target = copy
