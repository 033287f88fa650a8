"""Make the updates of buffers and inputs explicit."""

from __future__ import annotations

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputKind, OutputKind

from pteron.exir.passes.clone_node import clone_node
from pteron.exir.passes.replace_view_copies import is_view_copy

MUTATIONS = (
    OutputKind.BUFFER_MUTATION,
    OutputKind.USER_INPUT_MUTATION,
    getattr(OutputKind, "PARAMETER_MUTATION", OutputKind.BUFFER_MUTATION),
)


def insert_write_backs(program: ExportedProgram) -> None:
    """Append `copy_(target, new value)` for each buffer or input that `program` updates, in place.

    The new values leave the outputs of graph and signature. All reads of the old values come before the
    copies; a new value that *is* the old value of another target (two buffers that swap) is cloned first.
    """
    graph = program.graph_module.graph
    output = graph.output_node()
    returned = list(output.args[0])
    targets = _targets(program)
    updates: list[tuple[torch.fx.Node, torch.fx.Node]] = []
    kept_values, kept_specs = [], []
    for spec, value in zip(program.graph_signature.output_specs, returned, strict=True):
        if spec.kind in MUTATIONS:
            target = targets[str(spec.target)]
            if value is not target:
                updates.append((target, value))
        else:
            kept_values.append(value)
            kept_specs.append(spec)
    if len(kept_values) == len(returned):
        return
    updated = {target for target, _ in updates}
    with graph.inserting_before(output):
        values = [
            clone_node(graph, value) if len(updated) > 1 and _origin(value) in updated else value
            for _, value in updates
        ]
        # Export gives the new value to every read after an update, so a placeholder that is returned is the
        # old value; it would show the new one.
        for position, value in enumerate(kept_values):
            if isinstance(value, torch.fx.Node) and value in updated:
                kept_values[position] = clone_node(graph, value)
        for (target, _), value in zip(updates, values, strict=True):
            copy = graph.call_function(torch.ops.aten.copy_.default, (target, value))
            copy.meta = {
                name: item for name, item in value.meta.items() if name not in ("spec", "delegation_tag")
            }
            copy.meta["val"] = target.meta["val"]
    output.args = (tuple(kept_values),)
    program._graph_signature = ExportGraphSignature(
        input_specs=list(program.graph_signature.input_specs), output_specs=kept_specs
    )
    program.graph_module.recompile()


def _targets(program: ExportedProgram) -> dict[str, torch.fx.Node]:
    """Placeholders by what mutation outputs call them: a buffer's attribute path, an input's name."""
    found: dict[str, torch.fx.Node] = {}
    nodes = [node for node in program.graph_module.graph.nodes if node.op == "placeholder"]
    for spec, node in zip(program.graph_signature.input_specs, nodes, strict=True):
        if spec.kind is InputKind.USER_INPUT:
            found[spec.arg.name] = node
        elif spec.target is not None:
            found[spec.target] = node
    return found


def _origin(value: torch.fx.Node) -> torch.fx.Node:
    """The value whose memory `value` will share once views are elided."""
    while is_view_copy(value) and isinstance(value.args[0], torch.fx.Node):
        value = value.args[0]
    return value
