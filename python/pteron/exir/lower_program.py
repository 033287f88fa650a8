"""From edge programs to an emitted program."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind

from pteron.errors import ExportError, UnsupportedProgramError
from pteron.exir.config.backend_config import ExecutorchBackendConfig
from pteron.exir.config.compile_config import EdgeCompileConfig
from pteron.exir.edge.lost_dimensions import refuse_lost_dimensions
from pteron.exir.edge.stages import OUT_VARIANT, PLANNED
from pteron.exir.edge.verify import verify
from pteron.exir.edge_program import edge_program
from pteron.exir.emit.emit_program import EmittedProgram, emit_program, operator_names
from pteron.exir.emit.find_call_problems import find_call_problems, is_unregistered
from pteron.exir.emit.operator_origins import custom_operators
from pteron.exir.lowering_report import recorded_emission
from pteron.exir.memory.memory_planning_pass import memory_sizes
from pteron.exir.pass_order import FUNCTIONAL, INTO_MEMORY, PLAN, ToExecutorch
from pteron.exir.passes.find_problems import located_problems
from pteron.exir.passes.pass_list import run_stage
from pteron.exir.passes.problem import Problem, problems_text
from pteron.exir.progress import part, reach, step
from pteron.exir.serialize.check_load import check_load
from pteron.exir.serialize.serialize_program import add_packed_weights
from pteron.exir.target.kernel_lists import EXECUTORCH_PORTABLE

_log = logging.getLogger(__name__)

#: Shares of the time, for the expected one; the rest is emission (`lowering_report` has those of a model).
_PASSES_SHARE, _PLAN_SHARE = 0.4, 0.4
#: Of the plan: what comes before the places in memory.
_WRITTEN_SHARE = 0.7
#: Of the whole, where weights are packed.
_PACKING_SHARE = 0.3


def lowering_of(
    config: ExecutorchBackendConfig, edge_config: EdgeCompileConfig | None = None
) -> ToExecutorch:
    """What the stages of `to_executorch` are asked for by these settings."""
    return ToExecutorch(
        config, edge_config or EdgeCompileConfig(), partial(edge_program, kept_for_kernels=())
    )


def lower_programs(
    programs: Mapping[str, ExportedProgram],
    constant_methods: Mapping[str, Any],
    config: ExecutorchBackendConfig,
    edge_config: EdgeCompileConfig | None = None,
) -> tuple[EmittedProgram, dict[str, ExportedProgram]]:
    """(the emitted program, the planned graph of each method). The programs given are left as they were.

    `programs`: edge programs by method, made with `edge_config`. Raises `UnsupportedProgramError` that lists
    everything the target cannot run, in all methods.
    """
    lowering = lowering_of(config, edge_config)
    step(f"passes over {sum(len(program.graph.nodes) for program in programs.values()):,} nodes")
    packing = _PACKING_SHARE if config.packed_weights else 0.0
    with part(_PASSES_SHARE * (1.0 - packing)):
        functional = functional_programs(programs, lowering)
        _raise_problems(functional, lowering.kernels, config)
    for name, program in programs.items():
        _warn_of_input_updates(program, name)
    with part(_PLAN_SHARE * (1.0 - packing)):
        planned = plan_programs(functional, lowering)
    _check_unplanned_buffers(programs, config)
    step("values and instructions")
    with recorded_emission(program for program, _ in planned.values()):
        emitted = emit_program(
            planned,
            constant_methods,
            has_scoped_data=config.kernels != "executorch-portable",
            external=config.external_tags(),
            emit_stacktrace=config.emit_stacktrace,
        )
    if config.kernels == "pteron":
        _raise_what_load_refuses(emitted, config)
    _warn_of_custom_operators(emitted, config)
    if config.packed_weights:
        _refuse_packs_beside_devices(emitted)
        reach(1.0 - packing)
        step("packed weights")
        with part(packing):
            add_packed_weights(
                emitted.program,
                config.serialization_options(),
                lambda done, total: reach(done / max(total, 1)),
            )
    return emitted, {name: program for name, (program, _) in planned.items()}


_HINT = "replace these operators in the model, delegate them to a backend, or choose other kernels"


def _raise_problems(
    programs: Mapping[str, ExportedProgram], kernels: frozenset[str], config: ExecutorchBackendConfig
) -> None:
    problems: dict[Problem, None] = {}
    for name, program in programs.items():
        located = list(located_problems(program, name, kernels, takes_custom=isinstance(config.kernels, str)))
        problems.update(dict.fromkeys(problem for _, problem in located))
        # A call that cannot be written has no arguments to check.
        reported = {node for node, _ in located if node is not None}
        checked = find_call_problems(program, name, reported, target=config.kernels)
        problems.update(dict.fromkeys(checked))
    if problems:
        first = next(iter(problems))
        raise UnsupportedProgramError(
            f"{len(problems)} problem(s) keep this program from running on kernels={_shown(config)}:\n"
            + problems_text(list(problems)),
            problems=tuple(problems),
            method=first.method,
            operator=first.operator,
            source_line=first.source_line,
            hint=_HINT if any(problem.operator for problem in problems) else None,
        )


def _raise_what_load_refuses(emitted: EmittedProgram, config: ExecutorchBackendConfig) -> None:
    """Calls were checked one by one before; what is left is how they fit together: memory, moves, jumps."""
    refused = check_load(emitted.program, config.serialization_options())
    if refused:
        problems = [
            Problem(error.method or "", error.operator, str(error), error.source_line or "an unknown line")
            for error in refused
        ]
        raise UnsupportedProgramError(
            f"the program was emitted, but the runtime would refuse to load it:\n{problems_text(problems)}",
            problems=tuple(problems),
            method=problems[0].method,
            operator=problems[0].operator,
            source_line=problems[0].source_line,
            hint="look at the passes and memory planning settings that to_executorch was given; where it was "
            "given none, please report this",
        ) from refused[0]


def _check_unplanned_buffers(
    programs: Mapping[str, ExportedProgram], config: ExecutorchBackendConfig
) -> None:
    """An error where a method updates buffers that have neither place in memory nor name."""
    for name, program in programs.items():
        planning = config.planning_of(name)
        buffers = sorted(set(program.graph_signature.buffers_to_mutate.values()))
        if planning.alloc_mutable_buffers or not buffers:
            continue
        if not config.emit_mutable_buffer_names:
            raise planning.unnamed_buffers(name, buffers)
        _log.warning(
            "method %r updates %s, whose memory and first values the caller is to give "
            "(MemoryPlanningPass(alloc_mutable_buffers=False)): pteron starts with zeros",
            name,
            ", ".join(buffers),
        )


def _refuse_packs_beside_devices(emitted: EmittedProgram) -> None:
    """What load would pack is found by loading every method, and no method with device memory loads here."""
    for plan in emitted.program.execution_plan:
        if plan.non_const_buffer_device:
            raise ExportError(
                f"ExecutorchBackendConfig(packed_weights=True): method {plan.name!r} has memory on another "
                "device, which this package's runtime does not load",
                method=plan.name,
                argument="packed_weights",
                hint="leave packed_weights out, or plan all memory on the CPU: "
                "enable_non_cpu_memory_planning=False",
            )


def _warn_of_input_updates(program: ExportedProgram, method: str) -> None:
    updated = [
        str(spec.target)
        for spec in program.graph_signature.output_specs
        if spec.kind is OutputKind.USER_INPUT_MUTATION
    ]
    if updated:
        _log.warning(
            "method %r updates its input %s in place: the program computes with the new value, but the "
            "caller's array stays as it was, unlike in eager mode; return the new value where it is needed",
            method,
            ", ".join(map(repr, updated)),
        )


def _warn_of_custom_operators(emitted: EmittedProgram, config: ExecutorchBackendConfig) -> None:
    """A log line for custom operators that this process has no kernel for."""
    called = operator_names(emitted.program)
    if config.kernels == "pteron":
        missing = [name for name in custom_operators(called) if is_unregistered(name)]
        what = "register one before the program is loaded: pteron.register_kernel(%r, function)"
    elif config.kernels == "executorch-portable":
        missing = custom_operators(called - EXECUTORCH_PORTABLE)
        what = "ExecuTorch's runtime needs one linked in, registered as %r"
    else:
        return
    if missing:
        first = missing[0].removesuffix(".out") if config.kernels == "pteron" else missing[0]
        _log.warning("custom operators without a kernel here: %s; " + what, ", ".join(missing), first)


def _shown(config: ExecutorchBackendConfig) -> str:
    return config.kernels if isinstance(config.kernels, str) else "the given list"


def functional_programs(
    programs: Mapping[str, ExportedProgram], lowering: ToExecutorch
) -> dict[str, ExportedProgram]:
    """Copies of edge programs, by method, with what the target runs; see `FUNCTIONAL`."""
    return run_stage(FUNCTIONAL, programs, lowering)


def plan_programs(
    programs: Mapping[str, ExportedProgram], lowering: ToExecutorch
) -> dict[str, tuple[ExportedProgram, list[int]]]:
    """(the program with out variants and planned memory, sizes of its memories) by method.

    `programs`: of `functional_programs`; changed in place.
    """
    written: dict[str, ExportedProgram] = {}
    for name, program in programs.items():
        step(f"memory plan of {name!r}, {len(program.graph.nodes):,} nodes")
        with part(_WRITTEN_SHARE / len(programs)):
            written |= run_stage(INTO_MEMORY, {name: program}, lowering)
            verify(written[name], OUT_VARIANT, method=name)
    planned = run_stage(PLAN, written, lowering)
    for name, program in planned.items():
        verify(program, PLANNED, method=name)
        refuse_lost_dimensions(program, name)
    return {name: (program, memory_sizes(program)) for name, program in planned.items()}
