"""`reinplace_pass`: functional edge operators as those that write into their operand, where nobody reads
it later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import statically_known_true

from pteron.compat.exir.operator import output_to_aliased_input_map, unwrap_op_overload
from pteron.exir.edge.edge_op_overload import EdgeOpOverload, edge_op_by_name
from pteron.exir.edge.exir_ops import exir_ops
from pteron.exir.passes.constant_values import updated_placeholders

DEFAULT_INPLACEABLE_OPS: frozenset[Any] = frozenset({exir_ops.edge.aten.index_put.default})


def _derive_edge_inplace_overload(functional_op: Any) -> Any:
    """The edge operator of the same name with "_" behind it and the same arguments; None where there is
    none.
    """
    schema = unwrap_op_overload(functional_op)._schema
    namespace, _, name = schema.name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), f"{name}_", None)
    for overload in packet.overloads() if packet is not None else ():
        candidate = getattr(packet, overload)
        if _types(candidate._schema) == _types(schema) and _written(candidate._schema):
            return edge_op_by_name(namespace, f"{name}_", overload)
    return None


def _types(schema: torch._C.FunctionSchema) -> list[tuple[str, str]]:
    return [(argument.name, str(argument.type)) for argument in schema.arguments]


def _written(schema: torch._C.FunctionSchema) -> list[int]:
    return [
        position
        for position, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]


def _validate_inplace_mapping(functional_op: Any, inplace_op: Any) -> None:
    """ValueError where one operator cannot stand for the other."""
    functional, inplace = unwrap_op_overload(functional_op)._schema, unwrap_op_overload(inplace_op)._schema
    problem = None
    if [kind for _, kind in _types(functional)] != [kind for _, kind in _types(inplace)]:
        problem = "their arguments differ in number or type"
    elif not _written(inplace):
        problem = "it writes into none of its arguments: none is Tensor(a!)"
    elif 0 not in _written(inplace):
        problem = "it does not write into its first argument, which is not Tensor(a!)"
    elif not inplace.name.startswith(f"{functional.name}_"):
        problem = f"its name does not start with {functional.name}_"
    if problem is not None:
        raise ValueError(f"reinplace: {inplace_op} cannot stand for {functional_op}: {problem}")


def _derive_mutated_args(inplace_op: Any) -> tuple[int, ...]:
    """Positions of the arguments that an in-place operator writes into and returns."""
    schema = unwrap_op_overload(inplace_op)._schema
    returned = sorted(set(output_to_aliased_input_map(schema).values()))
    return tuple(returned or _written(schema))


def reinplace_pass(
    ep: ExportedProgram,
    ops_to_inplace: Iterable[Any] | None = None,
    inplace_overrides: Mapping[Any, Any] | None = None,
) -> ExportedProgram:
    """Rewrite calls in place, last to first, and return the program.

    A call is rewritten where nobody reads the operand after it, the operand has the result's shape and
    dtype, and is no input, or one that the program updates anyway.

    Args:
        ep: an edge program.
        ops_to_inplace: functional edge operators; their in-place form is the one of their name with "_".
            Those that have none stay, with `meta["_share_alloc_with_arg_idx"]`, the operand whose memory
            could be theirs.
        inplace_overrides: functional operator → in-place operator where the name does not say it.

    Raises:
        ValueError: an in-place operator cannot stand for its functional one.
    """
    overrides = dict(inplace_overrides or {})
    chosen = {*(DEFAULT_INPLACEABLE_OPS if ops_to_inplace is None else ops_to_inplace), *overrides}
    inplace = {op: overrides.get(op) or _derive_edge_inplace_overload(op) for op in chosen}
    for op, replacement in inplace.items():
        if replacement is not None:
            _validate_inplace_mapping(op, replacement)
    kept = {node for node in ep.graph.nodes if node.op == "placeholder"} - updated_placeholders(ep)
    read: set[torch.fx.Node] = set()
    for node in reversed(list(ep.graph.nodes)):
        if node.op == "output":
            continue
        operands = node.all_input_nodes
        replacement = inplace.get(node.target) if node.op == "call_function" else None
        if replacement is not None:
            written = [_operand(node, position) for position in _derive_mutated_args(replacement)]
            if all(_is_free(each, node, read, kept) for each in written):
                _write_in_place(ep.graph, node, replacement)
        elif node.op == "call_function" and node.target in inplace:
            _mark_shareable(node, read, kept)
        read.update(operands)
    _rename_outputs(ep)
    return ep


def _operand(node: torch.fx.Node, position: int) -> torch.fx.Node:
    given = node.args[position] if position < len(node.args) else None
    if not isinstance(given, torch.fx.Node):
        raise ValueError(
            f"reinplace: {node.format_node()} has no tensor at position {position}, which is written"
        )
    return given


def _is_free(
    operand: torch.fx.Node, node: torch.fx.Node, read: set[torch.fx.Node], kept: set[torch.fx.Node]
) -> bool:
    before, after = operand.meta.get("val"), node.meta.get("val")
    if operand in read or operand in kept or not isinstance(before, torch.Tensor):
        return False
    if not isinstance(after, torch.Tensor) or before.dtype != after.dtype or before.dim() != after.dim():
        return False
    return all(
        statically_known_true(one == other) for one, other in zip(before.shape, after.shape, strict=True)
    )


def _write_in_place(graph: torch.fx.Graph, node: torch.fx.Node, replacement: EdgeOpOverload) -> None:
    with graph.inserting_before(node):
        made = graph.call_function(replacement, node.args, node.kwargs)
    made.meta = dict(node.meta)
    node.replace_all_uses_with(made)
    graph.erase_node(node)


def _mark_shareable(node: torch.fx.Node, read: set[torch.fx.Node], kept: set[torch.fx.Node]) -> None:
    for position, argument in enumerate(node.args):
        if isinstance(argument, torch.fx.Node):
            if _is_free(argument, node, read, kept):
                node.meta["_share_alloc_with_arg_idx"] = position
            return


def _rename_outputs(ep: ExportedProgram) -> None:
    returned: Any = ep.graph.output_node().args[0]
    for spec, node in zip(ep.graph_signature.output_specs, returned, strict=True):
        if isinstance(node, torch.fx.Node) and hasattr(spec.arg, "name"):
            spec.arg.name = node.name
