"""From edge programs to an emitted program."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind

from pteron.errors import ExportError, UnsupportedProgramError
from pteron.exir.backend_config import ExecutorchBackendConfig
from pteron.exir.edge.lost_dimensions import refuse_lost_dimensions
from pteron.exir.edge.stages import OUT_VARIANT, PLANNED
from pteron.exir.edge.verify import verify
from pteron.exir.emit.emit_program import EmittedProgram, emit_program
from pteron.exir.emit.find_call_problems import find_call_problems
from pteron.exir.kernel_lists import kernel_names
from pteron.exir.memory.share_mutable_buffers import SHARED_MEMORY_ID, share_mutable_buffers
from pteron.exir.passes.eliminate_dead_code import eliminate_dead_code
from pteron.exir.passes.find_problems import located_problems
from pteron.exir.passes.give_branches_fresh_results import give_branches_fresh_results
from pteron.exir.passes.give_calls_own_bodies import give_calls_own_bodies
from pteron.exir.passes.insert_write_backs import insert_write_backs
from pteron.exir.passes.keep_operands_for_fusion import keep_operands_for_fusion
from pteron.exir.passes.legalize_portable_dim_order import LegalizePortableDimOrderPass
from pteron.exir.passes.optimize_programs import optimize_programs
from pteron.exir.passes.problem import Problem, problems_text
from pteron.exir.passes.replace_view_copies import replace_view_copies
from pteron.exir.passes.reuse_in_place import reuse_in_place
from pteron.exir.passes.run_graph_passes import copy_program, run_graph_passes
from pteron.exir.passes.separate_loop_values import separate_loop_values
from pteron.exir.passes.spec_prop_pass import SpecPropPass
from pteron.exir.passes.to_out_variants import to_out_variants
from pteron.exir.progress import step
from pteron.exir.serialize.check_load import check_load
from pteron.exir.serialize.packed_weights import add_packed_weights

_log = logging.getLogger(__name__)


def lower_programs(
    programs: Mapping[str, ExportedProgram],
    constant_methods: Mapping[str, Any],
    config: ExecutorchBackendConfig,
) -> tuple[EmittedProgram, dict[str, ExportedProgram]]:
    """(the emitted program, the planned graph of each method). The programs given are left as they were.

    Raises `UnsupportedProgramError` that lists everything the target cannot run, in all methods.
    """
    kernels = kernel_names(config.kernels)
    step(f"passes over {sum(len(program.graph.nodes) for program in programs.values()):,} nodes")
    functional = _functional_programs(programs, config)
    _raise_problems(functional, kernels, config)
    for name, program in programs.items():
        _warn_of_input_updates(program, name)
    planned = _plan(functional, config)
    step("values and instructions")
    emitted = emit_program(
        planned,
        constant_methods,
        has_scoped_data=config.kernels != "executorch-portable",
        external=config.external_tags(),
        emit_stacktrace=config.emit_stacktrace,
    )
    if config.kernels == "pteron":
        _raise_what_load_refuses(emitted, config)
    if config.packed_weights:
        add_packed_weights(emitted.program, config.serialization_options())
    return emitted, {name: program for name, (program, _) in planned.items()}


def _raise_problems(
    programs: Mapping[str, ExportedProgram], kernels: frozenset[str], config: ExecutorchBackendConfig
) -> None:
    problems: dict[Problem, None] = {}
    for name, program in programs.items():
        located = list(located_problems(program, name, kernels))
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
            hint="replace these operators in the model, delegate them to a backend, or choose other kernels",
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


def _shown(config: ExecutorchBackendConfig) -> str:
    return config.kernels if isinstance(config.kernels, str) else "the given list"


def _functional_programs(
    programs: Mapping[str, ExportedProgram], config: ExecutorchBackendConfig
) -> dict[str, ExportedProgram]:
    """Copies with write-backs, the caller's passes, optimisations and views."""
    changed = {name: _written_back(program, config) for name, program in programs.items()}
    changed = optimize_programs(changed, config.optimizations)
    if config.kernels == "executorch-portable":
        legalize = [LegalizePortableDimOrderPass()]
        changed = {name: run_graph_passes(program, legalize) for name, program in changed.items()}
    for program in changed.values():
        if config.remove_view_copy:
            replace_view_copies(program)
        give_calls_own_bodies(program)
        give_branches_fresh_results(program)
        separate_loop_values(program)
        eliminate_dead_code(program)
    return changed


def _functional(program: ExportedProgram, config: ExecutorchBackendConfig) -> ExportedProgram:
    """`_functional_programs` for a file of one method."""
    return _functional_programs({"forward": program}, config)["forward"]


def _written_back(program: ExportedProgram, config: ExecutorchBackendConfig) -> ExportedProgram:
    changed = copy_program(program)
    insert_write_backs(changed)
    passes = config.passes
    assert isinstance(passes, list)
    return run_graph_passes(changed, passes) if passes else changed


def _write_into_memory(program: ExportedProgram, method: str, config: ExecutorchBackendConfig) -> None:
    """Turn `program` into out variants with specs, state updated in place where that is safe."""
    step(f"memory plan of {method!r}, {len(program.graph.nodes):,} nodes")
    SpecPropPass(program.range_constraints)(program.graph_module)
    if config.optimize and config.kernels != "executorch-portable":
        keep_operands_for_fusion(program)
    to_out_variants(program)
    if config.run_reinplace_pass:
        reuse_in_place(program, kernel_names(config.kernels))
    verify(program, OUT_VARIANT, method=method)


def _plan(
    programs: Mapping[str, ExportedProgram], config: ExecutorchBackendConfig
) -> dict[str, tuple[ExportedProgram, list[int]]]:
    """(the program with out variants and planned memory, sizes of its memories) by method."""
    for name, program in programs.items():
        _write_into_memory(program, name, config)
    plannings = {name: config.planning_of(name) for name in programs}
    sharing = {name: planning for name, planning in plannings.items() if planning.share_mutable_buffers}
    shared_size = share_mutable_buffers(
        {name: programs[name] for name in sharing},
        max((planning.alignment for planning in sharing.values()), default=1),
    )
    planned = {}
    for name, program in programs.items():
        sizes = plannings[name].run(program)
        if name in sharing and shared_size:
            # All methods that share the memory give it one size, also those that use a part of it.
            sizes += [0] * (SHARED_MEMORY_ID + 1 - len(sizes))
            if sizes[SHARED_MEMORY_ID] > shared_size:
                raise ExportError(
                    f"method {name!r} plans other tensors in memory {SHARED_MEMORY_ID}, which holds the "
                    "buffers that methods share",
                    method=name,
                    hint="give these tensors another memory_id",
                )
            sizes[SHARED_MEMORY_ID] = shared_size
        verify(program, PLANNED, method=name)
        refuse_lost_dimensions(program, name)
        planned[name] = (program, sizes)
    return planned
