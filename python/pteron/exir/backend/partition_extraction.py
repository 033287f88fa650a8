"""Cuts a partition out of a graph: a program of its own, and one call in its place."""

from __future__ import annotations

import heapq
import operator
import re
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export.exported_program import ExportedProgram
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
)

from pteron.exir.backend.constant_duplication import STATE_MUTATION_KINDS, mutated_state
from pteron.exir.backend.flat_calling_convention import argument_for, flat_call_graph
from pteron.exir.backend.partition_nodes import PartitionNodes
from pteron.exir.edge.control_flow import graph_modules
from pteron.exir.edge.debug_handles import debug_handles

_OWNED_ORDER = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


@dataclass
class _Border:
    """What crosses the border of a partition, as nodes of the graph it is cut from.

    Attributes:
        owned: constants that become the partition's own, with their signature entries.
        arguments: everything else it reads, in order of first use.
        updates: new values of owned state, with their signature entries.
        results: nodes that others read.
    """

    owned: list[tuple[torch.fx.Node, InputSpec]] = field(default_factory=list)
    arguments: list[torch.fx.Node] = field(default_factory=list)
    updates: list[tuple[torch.fx.Node, OutputSpec]] = field(default_factory=list)
    results: list[torch.fx.Node] = field(default_factory=list)


def extract_partition(
    graph_module: torch.fx.GraphModule,
    program: ExportedProgram,
    partition: PartitionNodes,
    *,
    is_branch: bool,
    debug_handle: int,
) -> torch.fx.Node:
    """Replaces the partition's nodes by one `call_module` node and returns that node.

    The call's metadata holds `submodule_program` (the partition as an edge program), `backend_id`,
    `compile_spec`, `is_submodule`, the values it returns, `debug_handle`, which no other node has,
    `submodule_output_node`, and what left the signature (`toplevel_input_specs_to_delete` and
    `toplevel_output_specs_to_delete`, by name). Constants and updated buffers that the partition
    owns leave the program's signature and state. The graph is not in topological order afterwards:
    `restore_order` makes it so once all partitions are cut.
    """
    border = _find_border(program, partition, is_branch)
    submodule_program = _build_program(graph_module, program, partition, border)
    call = _insert_call(graph_module, partition, border, submodule_program)
    call.meta["debug_handle"] = debug_handle
    call.meta["is_submodule"] = is_branch
    call.meta["submodule_output_node"] = submodule_program.graph.output_node()
    call.meta["toplevel_input_specs_to_delete"] = {node.name: spec for node, spec in border.owned}
    call.meta["toplevel_output_specs_to_delete"] = {node.name: spec for node, spec in border.updates}
    _replace_results(program, partition, border, call, is_branch)
    _drop_owned(program, border)
    return call


def restore_order(graph: torch.fx.Graph) -> None:
    """Sorts the graph topologically, moving only what has to move."""
    nodes = list(graph.nodes)
    index = {node: position for position, node in enumerate(nodes)}
    waiting = {node: len(node.all_input_nodes) for node in nodes}
    ready = [index[node] for node in nodes if waiting[node] == 0 and node.op != "output"]
    heapq.heapify(ready)
    output = graph.output_node()
    while ready:
        node = nodes[heapq.heappop(ready)]
        output.prepend(node)
        for user in node.users:
            waiting[user] -= 1
            if waiting[user] == 0 and user.op != "output":
                heapq.heappush(ready, index[user])


def next_debug_handle(program: ExportedProgram) -> int:
    """A debug handle that no node of the program has, branches included."""
    handles = [
        handle
        for module in graph_modules(program.graph_module)
        for node in module.graph.nodes
        for handle in debug_handles(node)
    ]
    return max(handles, default=0) + 1


def _find_border(program: ExportedProgram, partition: PartitionNodes, is_branch: bool) -> _Border:
    members = set(partition.computing)
    border = _Border()
    if not is_branch:
        _find_owned(program, partition, members, border)
    owned = {node for node, _ in border.owned}
    seen: set[torch.fx.Node] = set()
    for node in partition.computing:
        for argument in node.all_input_nodes:
            if argument in members or argument in owned or argument in seen or argument.op == "get_attr":
                continue
            seen.add(argument)
            border.arguments.append(argument)
    kept_inside = {node for node, _ in border.updates}
    border.results = [
        node
        for node in partition.computing
        if node not in kept_inside and any(user not in members for user in node.users)
    ]
    return border


def _find_owned(
    program: ExportedProgram, partition: PartitionNodes, members: set[torch.fx.Node], border: _Border
) -> None:
    input_specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    mutated = mutated_state(program)
    for node in partition.constants:
        spec = input_specs[node.name]
        if not any(user in members for user in node.users):
            continue
        if spec.target not in mutated:
            border.owned.append((node, spec))
            continue
        update = _private_update(program, node, spec, members)
        if update is not None:
            border.owned.append((node, spec))
            border.updates.append(update)
    border.owned.sort(key=lambda entry: _OWNED_ORDER.index(entry[1].kind))


def _private_update(
    program: ExportedProgram, node: torch.fx.Node, spec: InputSpec, members: set[torch.fx.Node]
) -> tuple[torch.fx.Node, OutputSpec] | None:
    """The update of a buffer if nobody outside the partition sees the old or the new value, else None."""
    if any(user not in members for user in node.users):
        return None
    outputs = program.graph_signature.output_specs
    updates = [out for out in outputs if out.kind in STATE_MUTATION_KINDS and out.target == spec.target]
    readers = [other for other in program.graph_signature.input_specs if other.target == spec.target]
    if len(updates) != 1 or len(readers) != 1:
        return None
    by_name = {member.name: member for member in members}
    value = by_name.get(getattr(updates[0].arg, "name", ""))
    if value is None or any(user not in members and user.op != "output" for user in value.users):
        return None
    is_only_output = sum(getattr(out.arg, "name", None) == value.name for out in outputs) == 1
    return (value, updates[0]) if is_only_output else None


def _build_program(
    graph_module: torch.fx.GraphModule, program: ExportedProgram, partition: PartitionNodes, border: _Border
) -> ExportedProgram:
    graph = torch.fx.Graph()
    twins: dict[torch.fx.Node, torch.fx.Node] = {}

    def twin(node: torch.fx.Node) -> torch.fx.Node:
        if node not in twins:
            if node.op != "get_attr":
                raise AssertionError(
                    f"{node} is read by partition {partition.tag!r} but is not an input of it"
                )
            twins[node] = graph.node_copy(node)
        return twins[node]

    def place(node: torch.fx.Node) -> torch.fx.Node:
        twins[node] = graph.placeholder(node.name)
        twins[node].meta = dict(node.meta)
        return twins[node]

    input_specs = []
    for node, spec in border.owned:
        input_specs.append(InputSpec(spec.kind, argument_for(place(node)), spec.target, spec.persistent))
    input_specs += [
        InputSpec(InputKind.USER_INPUT, argument_for(place(node)), None) for node in border.arguments
    ]
    for node in partition.computing:
        twins[node] = graph.node_copy(node, twin)
    output_specs = [
        OutputSpec(spec.kind, argument_for(twins[node]), spec.target) for node, spec in border.updates
    ]
    output_specs += [OutputSpec(OutputKind.USER_OUTPUT, argument_for(twins[n]), None) for n in border.results]
    output = graph.output(tuple(twins[node] for node in _outputs(border)))
    output.meta["val"] = tuple(node.meta.get("val") for node in _outputs(border))
    targets = [spec.target for _, spec in border.owned if spec.target is not None]
    return ExportedProgram(
        root=torch.fx.GraphModule(graph_module, graph),
        graph=graph,
        graph_signature=ExportGraphSignature(input_specs=input_specs, output_specs=output_specs),
        state_dict={name: program.state_dict[name] for name in targets if name in program.state_dict},
        range_constraints=dict(program.range_constraints),
        module_call_graph=flat_call_graph(len(border.arguments), len(border.results)),
        constants={name: program.constants[name] for name in targets if name in program.constants},
        verifiers=list(program.verifiers),
    )


def _outputs(border: _Border) -> list[torch.fx.Node]:
    return [node for node, _ in border.updates] + border.results


def _insert_call(
    graph_module: torch.fx.GraphModule,
    partition: PartitionNodes,
    border: _Border,
    submodule_program: ExportedProgram,
) -> torch.fx.Node:
    stem = "fused_" + re.sub(r"\W", "_", partition.tag)
    taken = {name for name, _ in graph_module.named_children()}
    name = next(candidate for n in range(len(taken) + 1) if (candidate := f"{stem}_{n}") not in taken)
    graph_module.add_module(name, submodule_program.graph_module)
    with graph_module.graph.inserting_after(partition.computing[-1]):
        call = graph_module.graph.call_module(name, tuple(border.arguments))
    call.meta.update(
        val=[node.meta.get("val") for node in border.results],
        backend_id=partition.spec.backend_id,
        compile_spec=partition.spec.compile_specs,
        submodule_program=submodule_program,
    )
    return call


def _replace_results(
    program: ExportedProgram,
    partition: PartitionNodes,
    border: _Border,
    call: torch.fx.Node,
    is_branch: bool,
) -> None:
    graph = call.graph
    renamed: dict[str, torch.fx.Node] = {}
    previous = call
    for position, node in enumerate(border.results):
        with graph.inserting_after(previous):
            item = graph.call_function(operator.getitem, (call, position))
        item.meta = {"val": node.meta.get("val"), "debug_handle": call.meta["debug_handle"]}
        renamed[node.name] = item
        node.replace_all_uses_with(item, delete_user_cb=lambda user: user not in partition.computing)
        previous = item
    if not is_branch:
        _rename_outputs(program, border, renamed)
    read = {argument for node in partition.computing for argument in node.all_input_nodes}
    for node in reversed(partition.computing):
        graph.erase_node(node)
    for node in read:
        if node.op == "get_attr" and not node.users and node.graph is graph:
            _erase_attribute(graph, node)


def _rename_outputs(program: ExportedProgram, border: _Border, renamed: dict[str, torch.fx.Node]) -> None:
    signature = program.graph_signature
    output = program.graph.output_node()
    dropped = [spec for _, spec in border.updates]
    kept: list[tuple[Any, OutputSpec]] = []
    for argument, spec in zip(output.args[0], signature.output_specs, strict=True):
        if any(spec is update for update in dropped):
            continue
        if getattr(spec.arg, "name", None) in renamed:
            spec.arg = argument_for(renamed[spec.arg.name])
        kept.append((argument, spec))
    output.args = (tuple(argument for argument, _ in kept),)
    signature.output_specs[:] = [spec for _, spec in kept]


def _erase_attribute(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    graph.erase_node(node)
    name, owner = str(node.target), graph.owning_module
    is_used = any(other.op == "get_attr" and other.target == name for other in graph.nodes)
    if not is_used and owner is not None and "." not in name and hasattr(owner, name):
        delattr(owner, name)


def _drop_owned(program: ExportedProgram, border: _Border) -> None:
    if not border.owned:
        return
    signature = program.graph_signature
    names = {node.name for node, _ in border.owned}
    signature.input_specs[:] = [spec for spec in signature.input_specs if spec.arg.name not in names]
    still_used = {spec.target for spec in signature.input_specs}
    for node, spec in border.owned:
        program.graph.erase_node(node)
        if spec.target is not None and spec.target not in still_used:
            program._state_dict.pop(spec.target, None)
            program._constants.pop(spec.target, None)
