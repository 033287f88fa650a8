"""Cutting a partition out step by step, for code that does it itself: nodes into a submodule, the submodule
into a program, and what that program owns out of its caller. `to_backend` has a way of its own, in
`partition_extraction`.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._subclasses import FakeTensor
from torch.export.exported_program import ExportedProgram
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
)
from torch.fx.passes.utils.fuser_utils import erase_nodes, fuse_as_graphmodule, insert_subgm, topo_sort

from pteron.exir.backend.constant_duplication import OWNABLE_KINDS
from pteron.exir.backend.flat_calling_convention import argument_for, flat_call_graph
from pteron.exir.backend.partition_extraction import restore_order
from pteron.exir.backend.partitioner import DELEGATION_TAG

_MUTATIONS = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION)
_OWNED_ORDER = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def nodes_with_tag(
    tagged_graph_module: torch.fx.GraphModule, tag: str, owning_program: ExportedProgram
) -> list[torch.fx.Node]:
    """The nodes that carry `tag`, in graph order, constants of `owning_program` among them.

    Raises:
        RuntimeError: the output or an input of the user's carries it, or a constant that has a user with
            another tag.
    """
    constants = {
        spec.arg.name for spec in owning_program.graph_signature.input_specs if spec.kind in OWNABLE_KINDS
    }
    found = [node for node in tagged_graph_module.graph.nodes if node.meta.get(DELEGATION_TAG, "") == tag]
    for node in found:
        if node.op == "output":
            raise RuntimeError(f"output node {node} should not be tagged")
        if node.op != "placeholder":
            continue
        if node.name not in constants:
            raise RuntimeError(
                "placeholder node for non-params, non-buffer, and non-tensor constants should not be tagged: "
                f"{node} "
            )
        for user in node.users:
            other = user.meta.get(DELEGATION_TAG)
            if other != tag:
                raise RuntimeError(
                    f"constant data node ({node}) is tagged with ({tag}) but has user ({user}) which has tag "
                    f"({other})"
                )
    return found


def create_submodule_from_nodes(
    gm: torch.fx.GraphModule,
    node_list: Sequence[torch.fx.Node],
    tag: str,
    skip_legalize_graph: bool = False,
) -> tuple[torch.fx.GraphModule, torch.fx.Node]:
    """Replaces nodes of `gm`, in place, by one call of a submodule `fused_<tag>`. Returns the submodule and
    the `call_module` node. A single tensor is returned as a list of one, of which the caller takes item 0.

    Args:
        gm: the graph.
        node_list: the nodes, in any order; no path may leave them and come back.
        tag: names the submodule.
        skip_legalize_graph: leave `gm` as it is where it is not in topological order afterwards.

    Raises:
        AssertionError: a path leaves the nodes and comes back.
    """
    name = f"fused_{tag}"
    ordered = topo_sort(list(node_list))
    submodule, inputs, outputs = fuse_as_graphmodule(gm, ordered, name)
    _return_leaves(submodule)
    insert_subgm(gm, submodule, inputs, outputs)
    call = next(node for node in gm.graph.nodes if node.op == "call_module" and node.target == name)
    if len(outputs) == 1 and isinstance(outputs[0].meta["val"], FakeTensor):
        with gm.graph.inserting_after(call):
            item = gm.graph.call_function(operator.getitem, (call, 0))
        item.meta = dict(call.meta)
        call.replace_all_uses_with(item, delete_user_cb=lambda user: user is not item)
    for user in call.users:
        # Of the partition's last operator, which says nothing about an item of the result.
        user.meta.pop("nn_module_stack", None)
        user.meta.pop("source_fn_stack", None)
    erase_nodes(gm, ordered)
    if not skip_legalize_graph:
        restore_order(gm.graph)
    return submodule, call


def _return_leaves(submodule: torch.fx.GraphModule) -> None:
    """Makes the result a list of nodes: of one node, and of a node that computes a list, its items."""
    output = submodule.graph.output_node()
    result = output.args[0]
    if isinstance(result, torch.fx.Node) and isinstance(result.meta.get("val"), (list, tuple)):
        with submodule.graph.inserting_before(output):
            items = []
            for position, value in enumerate(result.meta["val"]):
                items.append(submodule.graph.call_function(operator.getitem, (result, position)))
                items[-1].meta = {"val": value}
        result = items
    output.args = (pytree.tree_leaves(result),)


def arrange_graph_placeholders(
    gm: torch.fx.GraphModule, owning_program: ExportedProgram, tag: str
) -> torch.fx.GraphModule:
    """Puts the placeholders of `gm` into the order of a signature, in place: parameters, buffers and
    constants of `owning_program` that carry `tag`, then everything else. Returns `gm`.
    """
    kinds = {spec.arg.name: spec.kind for spec in owning_program.graph_signature.input_specs}
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]

    def rank(node: torch.fx.Node) -> int:
        kind = kinds.get(node.name)
        is_owned = kind in OWNABLE_KINDS and node.meta.get(DELEGATION_TAG) == tag
        return _OWNED_ORDER.index(kind) if is_owned and kind is not None else len(_OWNED_ORDER)

    # Before the first node that computes; there is one, the output at least.
    anchor = next(node for node in gm.graph.nodes if node.op != "placeholder")
    for node in sorted(placeholders, key=rank):
        anchor.prepend(node)
    gm.graph.lint()
    gm.recompile()
    return gm


def arrange_graph_outputs(
    gm: torch.fx.GraphModule, output_specs: list[OutputSpec], call_module_node: torch.fx.Node
) -> torch.fx.GraphModule:
    """Puts updates of buffers before the other results, as a signature has them: in the output of `gm`, in
    `output_specs`, and in the items that users of `call_module_node` take. All in place; returns `gm`.

    Raises:
        RuntimeError: there are not as many specs as outputs.
    """
    output = gm.graph.output_node()
    returned = output.args[0]
    results = list(returned) if isinstance(returned, (list, tuple)) else [returned]
    if len(results) != len(output_specs):
        raise RuntimeError(
            f"Mismatch between graph outputs ({len(results)}) and output_specs ({len(output_specs)})"
        )
    order = sorted(range(len(results)), key=lambda place: output_specs[place].kind not in _MUTATIONS)
    if order == list(range(len(results))):
        return gm
    output.args = (tuple(results[place] for place in order),)
    output_specs[:] = [output_specs[place] for place in order]
    for user in list(call_module_node.users):
        if user.op == "call_function" and user.target is operator.getitem and user.args[1] in order:
            user.args = (user.args[0], order.index(user.args[1]))  # type: ignore[arg-type]
    gm.graph.lint()
    return gm


def create_exported_program_from_submodule(
    submodule: torch.fx.GraphModule,
    owning_program: ExportedProgram,
    tag: str,
    call_module_node: torch.fx.Node,
    is_submodule: bool,
) -> tuple[ExportedProgram, dict[str, InputSpec], dict[str, OutputSpec]]:
    """The program of a submodule that was cut out of `owning_program`.

    Parameters, buffers and constants that carry `tag` become its own, and so do updates of those buffers.

    Args:
        submodule: what `create_submodule_from_nodes` returned; changed in place.
        owning_program: the program it was cut from; not changed.
        tag: the tag of its nodes.
        call_module_node: the call in `owning_program`; its users take other items where results were moved.
        is_submodule: the call is in a body of control flow, whose inputs are nobody's constants.

    Returns:
        The program; then the input and the output specs that it took over, by the name of the placeholder
        or item in `owning_program`. `drop_owned_state` removes them there.

    Raises:
        RuntimeError: a buffer's update is also another output of `owning_program`.
    """
    arrange_graph_placeholders(submodule, owning_program, tag)
    signature = owning_program.graph_signature
    specs = {} if is_submodule else {spec.arg.name: spec for spec in signature.input_specs}
    owned: dict[str, InputSpec] = {}
    input_specs = []
    for node in submodule.graph.nodes:
        if node.op != "placeholder":
            continue
        spec = specs.get(node.name)
        if spec is not None and spec.kind in OWNABLE_KINDS and node.meta.get(DELEGATION_TAG) == tag:
            owned[node.name] = spec
            input_specs.append(InputSpec(spec.kind, argument_for(node), spec.target, spec.persistent))
        else:
            input_specs.append(InputSpec(InputKind.USER_INPUT, argument_for(node), None))
    targets = [spec.target for spec in owned.values() if spec.target is not None]
    updates = {} if is_submodule else _owned_updates(owning_program, call_module_node, set(targets))
    output_specs = []
    results: Any = submodule.graph.output_node().args[0]
    for position, node in enumerate(results):
        if position in updates:
            _, spec_out = updates[position]
            output_specs.append(OutputSpec(spec_out.kind, argument_for(node), spec_out.target))
        else:
            output_specs.append(OutputSpec(OutputKind.USER_OUTPUT, argument_for(node), None))
    arrange_graph_outputs(submodule, output_specs, call_module_node)
    program = ExportedProgram(
        root=submodule,
        graph=submodule.graph,
        graph_signature=ExportGraphSignature(input_specs=input_specs, output_specs=output_specs),
        state_dict={
            name: owning_program.state_dict[name] for name in targets if name in owning_program.state_dict
        },
        range_constraints=dict(owning_program.range_constraints),
        module_call_graph=flat_call_graph(len(input_specs) - len(owned), len(output_specs) - len(updates)),
        constants={
            name: owning_program.constants[name] for name in targets if name in owning_program.constants
        },
        verifiers=list(owning_program.verifiers),
    )
    return program, owned, {item.name: spec for item, spec in updates.values()}


def _owned_updates(
    program: ExportedProgram, call: torch.fx.Node, targets: set[str]
) -> dict[int, tuple[torch.fx.Node, OutputSpec]]:
    """Results of `call`, by their place, that are new values of `targets`: the item and its spec."""
    updates = {}
    for item in call.users:
        if item.op != "call_function" or item.target is not operator.getitem:
            continue
        specs = [s for s in program.graph_signature.output_specs if getattr(s.arg, "name", None) == item.name]
        found = [spec for spec in specs if spec.kind is OutputKind.BUFFER_MUTATION and spec.target in targets]
        if found and len(specs) > 1:
            raise RuntimeError(
                f"buffer {found[0].target} belongs to the partition, but its new value {item} is also "
                "another output of the program; leave the buffer without a tag"
            )
        if found:
            place = item.args[1]
            assert isinstance(place, int)
            updates[place] = (item, found[0])
    return updates


def drop_owned_state(
    program: ExportedProgram,
    call: torch.fx.Node,
    inputs: Mapping[str, InputSpec],
    outputs: Mapping[str, OutputSpec],
) -> None:
    """Removes from `program`, in place, what a delegate took over: placeholders, updates, entries of the
    signature and the state. A constant that other nodes still read stays.

    Args:
        program: the caller.
        call: its delegate call; users take other items where updates were removed.
        inputs: input specs by the name of their placeholder.
        outputs: output specs by the name of the item of `call`.
    """
    signature = program.graph_signature
    placeholders = [node for node in program.graph.find_nodes(op="placeholder") if node.name in inputs]
    names = set(inputs) - {node.name for node in placeholders if node.users}
    signature.input_specs[:] = [spec for spec in signature.input_specs if spec.arg.name not in names]
    still_used = {spec.target for spec in signature.input_specs}
    for node in placeholders:
        if not node.users:
            program.graph.erase_node(node)
    for name in names:
        target = inputs[name].target
        if target is not None and target not in still_used:
            program._state_dict.pop(target, None)
            program._constants.pop(target, None)
    updates = [spec for spec in signature.output_specs if getattr(spec.arg, "name", None) in outputs]
    if not updates:
        return
    gone = {spec.arg.name for spec in updates}
    signature.output_specs[:] = [spec for spec in signature.output_specs if spec not in updates]
    output = program.graph.output_node()
    output.args = (tuple(result for result in output.args[0] if getattr(result, "name", None) not in gone),)
    places = sorted(item.args[1] for item in call.users if item.name in gone)  # type: ignore[type-var]
    for item in list(call.users):
        if item.name in gone:
            program.graph.erase_node(item)
        else:
            place = item.args[1]
            item.args = (call, place - sum(other < place for other in places))  # type: ignore[operator, misc]
