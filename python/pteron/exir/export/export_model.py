"""The stages behind `pteron.export`, and their result."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.export import ExportedProgram

import pteron
from pteron.errors import ExportError
from pteron.exir.config.backend_config import ExecutorchBackendConfig
from pteron.exir.config.compile_config import EdgeCompileConfig
from pteron.exir.config.explicit_settings import explicit_settings
from pteron.exir.executorch_program_manager import ExecutorchProgramManager
from pteron.exir.export.dimension_limits import with_limits
from pteron.exir.export.example_check import CheckResult, check_example
from pteron.exir.export.export_report import ExportReport
from pteron.exir.passes.refuse_broken_quantisation import refuse_observers
from pteron.exir.program import EdgeProgramManager
from pteron.exir.progress import part, progress_of, step
from pteron.exir.to_edge_transform_and_lower import to_edge_transform_and_lower

_TRAINING = "the model is in training mode, and is exported so; model.eval() leaves out dropout and the like"


@dataclass(frozen=True)
class ExportResult:
    """What `pteron.export` made: the program, and every stage on the way.

    Attributes:
        program: the finished program, a manager like that of `to_executorch`.
        report: what was done; printed by `pteron.export`.
        exported: the captured program, with a largest extent for every dynamic dimension.
        edge: the program in the edge dialect, after delegation.
    """

    program: ExecutorchProgramManager
    report: ExportReport
    exported: ExportedProgram
    edge: EdgeProgramManager

    @property
    def buffer(self) -> bytes:
        """The bytes of the program file."""
        return self.program.buffer

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program to `path`, which ends in `.pte`, and its data files, if any, beside it.

        Raises ValueError for another ending; OSError where a file cannot be written.
        """
        self.program.save(path)
        self.program.write_tensor_data_to_file(Path(path).parent)

    def load(self) -> pteron.Program:
        """The program, loaded."""
        return pteron.load(self.buffer, data=dict(self.program._tensor_data) or None)


#: Shares of the time of the stages, for the expected one.
_SHARES = {"capture": 0.35, "to edge": 0.4, "to executorch": 0.2, "check": 0.05}


class _Stages:
    """The seconds that each stage takes."""

    def __init__(self, is_captured: bool) -> None:
        self.seconds: dict[str, float] = {}
        self._whole = 1.0 - (_SHARES["capture"] if is_captured else 0.0)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        with part(_SHARES[name] / self._whole):
            yield
        self.seconds[name] = time.monotonic() - started


@progress_of("export")
def export_model(
    model: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None,
    *,
    dynamic_shapes: Any,
    default_max: int | None,
    strict: bool,
    partitioners: Any,
    compile_config: EdgeCompileConfig | None,
    backend_config: ExecutorchBackendConfig | None,
    packed_weights: bool | None,
    check: bool,
    tolerance: float | None,
    report: bool,
) -> ExportResult:
    """`pteron.export`; the arguments are described there."""
    config = explicit_settings(backend_config, ExecutorchBackendConfig, "export(backend_config=...)")
    if packed_weights is not None:
        config = dataclasses.replace(config, packed_weights=packed_weights)
    stages = _Stages(isinstance(model, ExportedProgram))
    step("capture")
    with stages.stage("capture"):
        captured, notes = _captured(model, args, kwargs, dynamic_shapes, strict)
        exported, extents = with_limits(captured, default_max)
    with stages.stage("to edge"):
        edge = to_edge_transform_and_lower(
            exported, partitioner=partitioners or None, compile_config=compile_config
        )
    with stages.stage("to executorch"):
        program = edge.to_executorch(config)
    step("check on the example")
    with stages.stage("check"):
        found = (
            _check(exported, args, kwargs, program, tolerance)
            if check
            else CheckResult(skipped="check=False")
        )
    made = ExportReport(
        file_bytes=program.nbytes,
        data_files=program.data_files,
        packed_weights=config.packed_weights,
        dynamic_extents=extents,
        delegation=edge.delegation_report(),
        memory=program.memory_report(),
        check=found,
        seconds=stages.seconds,
        notes=notes,
    )
    if report:
        print(made)
    return ExportResult(program, made, exported, edge)


def _captured(
    model: Any, args: Any, kwargs: Mapping[str, Any] | None, dynamic_shapes: Any, strict: bool
) -> tuple[ExportedProgram, tuple[str, ...]]:
    if isinstance(model, ExportedProgram):
        if dynamic_shapes is not None:
            raise ExportError(
                "export(dynamic_shapes=...): the model is an ExportedProgram, which has its shapes already",
                argument="dynamic_shapes",
                expected="None",
                got=repr(dynamic_shapes),
                hint="give dynamic_shapes to torch.export.export, or give the module itself",
            )
        return model, ()
    if not isinstance(model, torch.nn.Module):
        raise TypeError(
            "export: expected a torch.nn.Module or a torch.export.ExportedProgram, got "
            f"{type(model).__name__}"
        )
    if not isinstance(args, tuple):
        raise TypeError(f"export: expected the example inputs as a tuple, got {type(args).__name__}")
    refuse_observers(model)
    with torch.no_grad():
        captured = torch.export.export(
            model, args, dict(kwargs or {}), dynamic_shapes=dynamic_shapes, strict=strict
        )
    return captured, (_TRAINING,) if model.training else ()


def _check(
    exported: ExportedProgram,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None,
    program: ExecutorchProgramManager,
    tolerance: float | None,
) -> CheckResult:
    given = (args, dict(kwargs or {}))
    if not args and not kwargs and exported.example_inputs is not None:
        given = exported.example_inputs
    flat = _flat_inputs(exported, *given)
    if flat is None:
        return CheckResult(skipped="no example inputs were given")
    return check_example(exported, flat, given, program.buffer, program._tensor_data, tolerance)


def _flat_inputs(
    exported: ExportedProgram, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Sequence[Any] | None:
    """The example as a flat list, keywords in the order of the program; None where it is not the example."""
    spec = exported.call_spec.in_spec
    if spec is None:
        return None
    names = spec.children()[1].context
    if sorted(names) != sorted(kwargs):
        return None
    leaves, given = pytree.tree_flatten((tuple(args), {name: kwargs[name] for name in names}))
    return leaves if given == spec else None
