"""Copies of a program: with its tensors, without them, with a state of its own."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch.export.exported_program import ExportedProgram


def deep_copy(program: ExportedProgram) -> ExportedProgram:
    """A copy that shares no graph, signature or tensor with `program`."""
    # One call for both tables: tensors that stand in both, or twice in one, stay one tensor.
    state_dict, constants = copy.deepcopy((program.state_dict, program.constants))
    return rebuilt(program, state_dict, constants, program.example_inputs)


def copy_sharing_tensors(program: ExportedProgram) -> ExportedProgram:
    """A copy with a graph and a signature of its own, and the tensors of `program`."""
    return rebuilt(program, dict(program.state_dict), dict(program.constants), program.example_inputs)


def copy_with_own_state(program: ExportedProgram) -> ExportedProgram:
    """A copy with a graph, a signature and updated buffers of its own, and the constant tensors of
    `program`.
    """
    duplicate = copy_sharing_tensors(program)
    for target in program.graph_signature.buffers_to_mutate.values():
        for table in (duplicate._state_dict, duplicate._constants):
            value = table.get(target)
            if isinstance(value, torch.Tensor):
                table[target] = value.detach().clone()
    return duplicate


def rebuilt(
    program: ExportedProgram,
    state_dict: dict[str, Any],
    constants: dict[str, Any],
    example_inputs: Any = None,
) -> ExportedProgram:
    """A copy with a graph and a signature of its own, and the given tensors."""
    graph_module = copy.deepcopy(program.graph_module)
    _restore(program.graph.nodes, graph_module.graph.nodes)
    return ExportedProgram(
        root=graph_module,
        graph=graph_module.graph,
        graph_signature=copy.deepcopy(program.graph_signature),
        state_dict=state_dict,
        range_constraints=dict(program.range_constraints),
        # Tree specs are immutable, and copying them makes torch warn.
        module_call_graph=[copy.copy(entry) for entry in program.module_call_graph],
        example_inputs=example_inputs,
        constants=constants,
        verifiers=list(program.verifiers),
    )


def with_names_of(program: ExportedProgram, duplicate: ExportedProgram) -> ExportedProgram:
    """`duplicate`, an unchanged copy of `program`, with its nodes named as in `program`."""
    _restore(program.graph.nodes, duplicate.graph.nodes)
    return duplicate


def validate(program: ExportedProgram) -> None:
    """Runs the program's own verifiers; they raise `SpecViolationError`."""
    program.validate()  # type: ignore[no-untyped-call]


def _restore(originals: Iterable[torch.fx.Node], copies: Iterable[torch.fx.Node]) -> None:
    before, after = list(originals), list(copies)
    # A backend's own way of copying may have changed the graph; then its names are its own affair.
    if [node.op for node in before] != [node.op for node in after]:
        return
    for node, twin in zip(before, after, strict=True):
        twin.name = node.name


_log = logging.getLogger(__name__)


def get_fake_program(program: ExportedProgram) -> ExportedProgram:
    """A copy whose parameters and buffers are fake tensors. Lifted constants stay the caller's own tensors.

    Raises:
        AssertionError: no node carries a fake tensor, so there is no mode to make others with.
    """
    values = [node.meta["val"] for node in program.graph.nodes if "val" in node.meta]
    fake_mode = detect_fake_mode([value for value in values if isinstance(value, torch.Tensor)])
    if fake_mode is None:
        raise AssertionError("Could not detect fake mode: no node of the graph carries a fake tensor")
    state = {
        name: fake_mode.from_tensor(tensor, static_shapes=True) for name, tensor in program.state_dict.items()
    }
    return rebuilt(program, state, dict(program.constants))


def copy_for_partitioner(program: ExportedProgram) -> ExportedProgram:
    """What a partitioner gets: a fake copy, or, with a warning, a full copy where that fails."""
    try:
        return get_fake_program(program)
    except Exception as error:
        _log.warning(
            "no fake copy of the program (%s: %s); copying it with its weights", type(error).__name__, error
        )
        return deep_copy(program)


def update_to_real_program(tagged: ExportedProgram, real: ExportedProgram) -> None:
    """Gives `tagged`, in place, the tensors of `real`. Its dictionaries stay its own; tensors are shared."""
    tagged._state_dict = {**tagged._state_dict, **real.state_dict}
    tagged._constants = {**tagged._constants, **real.constants}
