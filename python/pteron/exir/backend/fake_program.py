"""A copy of a program that has its graph and its shapes, and none of its weights."""

from __future__ import annotations

import logging

import torch
from torch._guards import detect_fake_mode
from torch.export.exported_program import ExportedProgram

from pteron.exir.backend.program_copy import deep_copy, rebuilt

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
