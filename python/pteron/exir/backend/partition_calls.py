"""From a tagged program to calls of lowered modules, in two steps: cut every partition out, then put
delegates in.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch.export.exported_program import ExportedProgram
from torch.export.graph_signature import OutputKind

from pteron.exir.backend.backend_details import PreprocessResult
from pteron.exir.backend.constant_duplication import duplicate_shared_constants
from pteron.exir.backend.cut_by_nodes import drop_owned_state
from pteron.exir.backend.delegate_call import attach_lowered_module, executorch_call_delegate
from pteron.exir.backend.graph_identity import first_difference
from pteron.exir.backend.lowered_backend_module import LoweredBackendModule
from pteron.exir.backend.partition_extraction import extract_partition, next_debug_handle, restore_order
from pteron.exir.backend.partition_nodes import collect_partitions
from pteron.exir.backend.partition_order import breadth_first
from pteron.exir.backend.partition_report import PARTITIONED_BY, REPORTED_REASON, explain_leftovers
from pteron.exir.backend.partitioner import DELEGATION_TAG, DelegationSpec, Partitioner
from pteron.exir.backend.program_copy import copy_for_partitioner, update_to_real_program, validate
from pteron.exir.edge.control_flow import control_flows, graph_modules
from pteron.exir.edge.delegate_call import is_delegate_call, lowered_module_of
from pteron.exir.edge.source_location import source_location

_logger = logging.getLogger(__name__)

_is_validation_enabled = True


def disable_validation() -> None:
    """Stops checking, for the rest of the process, that partitioners only tag."""
    global _is_validation_enabled
    _is_validation_enabled = False


@contextmanager
def validation_disabled() -> Iterator[None]:
    """Within it, a partitioner may change the graph that it tags."""
    global _is_validation_enabled
    previous = _is_validation_enabled
    _is_validation_enabled = False
    try:
        yield
    finally:
        _is_validation_enabled = previous


def is_validation_enabled() -> bool:
    """Whether partitioners are checked."""
    return _is_validation_enabled


def refuse_split_state(modules: Sequence[torch.fx.GraphModule], tags: Collection[str]) -> None:
    """Checks that all calls of a lowered module which updates buffers of its own have the same tag, or none.

    Each program that holds such a module has a state of its own, so calls in different partitions would no
    longer see each other's updates.

    Raises:
        RuntimeError: they have not; the text names two of the calls.
    """
    first: dict[int, torch.fx.Node] = {}
    for module in modules:
        for node in module.graph.nodes:
            if not is_delegate_call(node):
                continue
            lowered = lowered_module_of(node)
            state = lowered.original_module.graph_signature.buffers_to_mutate.values()
            if not state:
                continue
            known = first.setdefault(id(lowered), node)
            here, there = (_tag(each, tags) for each in (node, known))
            if here != there:
                raise RuntimeError(
                    f"{known} and {node} call one lowered module that keeps state "
                    f"({', '.join(sorted(state))}), but have different tags ({there!r} and {here!r}): each "
                    "partition would have a state of its own. Give both calls the same tag, or none; the "
                    f"second is from {source_location(node)}"
                )


def _tag(node: torch.fx.Node, tags: Collection[str]) -> str | None:
    tag = node.meta.get(DELEGATION_TAG)
    return tag if tag in tags else None


#: Key of the graph module's `meta`: {node name: tag} of nodes whose tag the partitioner's table did not name.
UNNAMED_TAGS = "unnamed_delegation_tags"

#: Of a cut partition's call: {placeholder or item name: spec} of what its program took over.
OWNED_SPECS = ("toplevel_input_specs_to_delete", "toplevel_output_specs_to_delete")

_CALL_METADATA = (
    DELEGATION_TAG,
    "backend_id",
    "compile_spec",
    "submodule_program",
    "is_submodule",
    "submodule_output_node",
    *OWNED_SPECS,
)


def tag_program(
    program: ExportedProgram, partitioner: Partitioner
) -> tuple[ExportedProgram, dict[str, DelegationSpec]]:
    """Runs `partitioner` on a copy of `program` and returns the tagged copy, with real tensors, and the tags.

    Raises:
        AssertionError: the partitioner changed the graph (unless validation is off) or gave no table of tags.
        RuntimeError: a tagged constant cannot be copied for its other readers.
    """
    validate(program)
    result = partitioner(copy_for_partitioner(program))
    tagged = getattr(result, "tagged_exported_program", None)
    if not isinstance(tagged, ExportedProgram):
        raise TypeError(f"partitioner {partitioner}: expected a PartitionResult, got {result!r}")
    if not is_validation_enabled():
        _logger.warning("Disabled validating the partitioner.")
    else:
        difference = first_difference(program.graph_module, tagged.graph_module)
        if difference is not None:
            raise AssertionError(
                f"The partitioner {partitioner} should not modify the graph module: {difference}. Change the "
                "program in a pass before, or allow it with validation_disabled()"
            )
    if result.partition_tags is None:
        raise AssertionError(
            f"Partitioner {partitioner} needs a `partition_tags` field containing a mapping of tags to "
            "delegate spec: a dict from each tag to its DelegationSpec"
        )
    tags = dict(result.partition_tags)
    update_to_real_program(tagged, program)
    _set_unnamed_tags_aside(tagged, tags)
    explain_leftovers(tagged, partitioner)
    duplicate_shared_constants(tagged, tags)
    return tagged, tags


def cut_partitions(program: ExportedProgram, tags: dict[str, DelegationSpec]) -> list[torch.fx.Node]:
    """Replaces every partition by a `call_module` node, in place, and returns these in the order of `tags`,
    those in branches last. Bodies of a control-flow operator that went into a partition are left alone.

    Raises the errors of `collect_partitions` and `refuse_split_state`.
    """
    refuse_split_state(list(graph_modules(program.graph_module)), tags)
    calls: list[torch.fx.Node] = []
    # Looked for once: the handles of all nodes are read for it.
    first_handle = next_debug_handle(program)
    # What passes noted about the program is for backends too; what lowering noted is not.
    meta = program.graph_module.meta
    noted = {key: value for key, value in meta.items() if key not in (UNNAMED_TAGS, PARTITIONED_BY)}
    # Callers before callees, and only what is still called once the partitions of the caller are cut.
    pending, seen = [program.graph_module], {id(program.graph_module)}
    while pending:
        module = pending.pop()
        is_branch = module is not program.graph_module
        partitions = collect_partitions(module, program, tags, is_branch=is_branch)
        order = {node: place for place, node in enumerate(module.graph.nodes)}
        for cut in partitions:
            cut.computing.sort(key=order.__getitem__)
            call = extract_partition(
                module, program, cut, is_branch=is_branch, debug_handle=first_handle + len(calls)
            )
            call.meta["submodule_program"].graph_module.meta.update(noted)
            calls.append(call)
            if cut is not partitions[-1]:
                order = breadth_first(module.graph, order)
        if partitions:
            restore_order(module.graph)
            module.graph.lint()
            module.recompile()
        bodies = [body.module for call in control_flows(module) for body in call.bodies]
        pending += [body for body in reversed(bodies) if id(body) not in seen]
        seen.update(map(id, bodies))
    return calls


def in_graph_order(calls: Sequence[torch.fx.Node]) -> list[torch.fx.Node]:
    """The calls of each graph in its order; graphs in the order in which `calls` comes to them."""
    position: dict[torch.fx.Node, tuple[int, int]] = {}
    for rank, graph in enumerate(dict.fromkeys(call.graph for call in calls)):
        position |= {node: (rank, place) for place, node in enumerate(graph.nodes)}
    return sorted(calls, key=position.__getitem__)


def lowered_module_for(
    call: torch.fx.Node, result: PreprocessResult, backend_id: str
) -> LoweredBackendModule:
    """The lowered module for one cut partition and what its backend made of it."""
    return make_lowered_module(call.meta["submodule_program"], backend_id, call.meta["compile_spec"], result)


def make_lowered_module(
    program: ExportedProgram, backend_id: str, compile_specs: list[object], result: PreprocessResult
) -> LoweredBackendModule:
    """Puts a program and what a backend made of it together."""
    lowered = LoweredBackendModule(
        program,
        backend_id,
        bytes(result.processed_bytes),
        compile_specs,  # type: ignore[arg-type]
        result.data_store_output,
    )
    lowered.meta = {"debug_handle_map": result.debug_handle_map}
    info = getattr(result, "_delegate_info_meta", None)
    if info is not None:
        lowered.meta["_delegate_info_meta"] = info
    return lowered


def insert_delegate_call(
    call: torch.fx.Node, lowered: LoweredBackendModule, program: ExportedProgram | None = None
) -> torch.fx.Node:
    """Replaces a cut partition's `call_module` node by a delegate call, which it returns.

    Args:
        call: the call; its metadata names what the delegate owns, if it was cut by `cut_by_nodes`.
        lowered: what to call.
        program: the program it is in, to remove there what the delegate owns; None where that is done.
    """
    graph, owner = call.graph, call.graph.owning_module
    if owner is None:
        raise AssertionError(f"the graph of {call} belongs to no module")
    inputs, outputs = (call.meta.get(key, {}) for key in OWNED_SPECS)
    arguments = [given for given in call.args if getattr(given, "name", None) not in inputs]
    with graph.inserting_before(call):
        target = graph.get_attr(attach_lowered_module(owner, lowered))
        delegate = graph.call_function(executorch_call_delegate, (target, *arguments), dict(call.kwargs))
    delegate.meta = {key: value for key, value in call.meta.items() if key not in _CALL_METADATA}
    call.replace_all_uses_with(delegate)
    graph.erase_node(call)
    if hasattr(owner, str(call.target)):
        delattr(owner, str(call.target))
    if program is not None:
        delegate.meta["val"] = _returned_values(call)
        delegate.meta.setdefault("debug_handle", next_debug_handle(program))
        drop_owned_state(program, delegate, inputs, outputs)
    return delegate


def _returned_values(call: torch.fx.Node) -> list[object]:
    """What the caller of a cut partition gets, updates of state that it owns left out."""
    signature = call.meta["submodule_program"].graph_signature
    results = call.meta["submodule_output_node"].args[0]
    return [
        result.meta.get("val")
        for result, spec in zip(results, signature.output_specs, strict=True)
        if spec.kind is OutputKind.USER_OUTPUT
    ]


def remove_used_metadata(graph: torch.fx.Graph) -> None:
    """Removes tags and the notes that lowering left on nodes, in branches too."""
    owner = graph.owning_module
    for node in graph.nodes if owner is None else _all_nodes(owner, graph):
        for key in _CALL_METADATA:
            node.meta.pop(key, None)


def finished_program(tagged: ExportedProgram, original: ExportedProgram) -> ExportedProgram:
    """The result of lowering: tags removed, validated, with the example inputs of the program it came
    from.
    """
    tagged.graph_module.recompile()
    remove_used_metadata(tagged.graph)
    return ExportedProgram(
        root=tagged.graph_module,
        graph=tagged.graph,
        graph_signature=tagged.graph_signature,
        state_dict=tagged.state_dict,
        range_constraints=tagged.range_constraints,
        module_call_graph=tagged.module_call_graph,
        example_inputs=original.example_inputs,
        constants=tagged.constants,
        verifiers=list(tagged.verifiers),
    )


def _all_nodes(owner: torch.fx.GraphModule, graph: torch.fx.Graph) -> Iterator[torch.fx.Node]:
    yield from graph.nodes
    for module in graph_modules(owner):
        if module.graph is not graph:
            yield from module.graph.nodes


def _set_unnamed_tags_aside(program: ExportedProgram, tags: dict[str, DelegationSpec]) -> None:
    unnamed: dict[str, str] = dict(program.graph_module.meta.get(UNNAMED_TAGS, {}))
    for module in graph_modules(program.graph_module):
        for node in module.graph.nodes:
            tag = node.meta.get(DELEGATION_TAG)
            if tag is None:
                node.meta.pop(DELEGATION_TAG, None)
            elif tag not in tags:
                unnamed[node.name] = str(node.meta.pop(DELEGATION_TAG))
                node.meta[REPORTED_REASON] = f"its tag {tag!r} is not in partition_tags"
    program.graph_module.meta[UNNAMED_TAGS] = unnamed
