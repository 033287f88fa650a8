"""`to_edge`, graph passes and delegation in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch.export import ExportedProgram

from pteron.errors import ExportError
from pteron.exir.backend.partitioner import DelegationSpec, Partitioner, as_partitioner
from pteron.exir.config.compile_config import EdgeCompileConfig
from pteron.exir.config.explicit_settings import explicit_settings
from pteron.exir.decompose.core_decompositions import torch_failures_named
from pteron.exir.decompose.preserved_operators import PreservedOperators
from pteron.exir.edge_program import edge_program
from pteron.exir.lowering_report import recording
from pteron.exir.method_map import programs_by_method
from pteron.exir.pass_order import CAPTURED, ToEdge
from pteron.exir.passes.pass_list import run_stage
from pteron.exir.passes.run_graph_passes import GraphPass
from pteron.exir.program import EdgeProgramManager
from pteron.exir.progress import part, progress_of

#: Share of the time, for the expected one; the rest is delegation.
_EDGE_SHARE = 0.7
#: Of the edge program: the decomposition that partitioners look at.
_CHOICE_SHARE = 0.3

Choice = Partitioner | type[Partitioner] | DelegationSpec


@progress_of("to_edge_transform_and_lower")
def to_edge_transform_and_lower(
    programs: ExportedProgram | Mapping[str, ExportedProgram],
    transform_passes: GraphPass | Sequence[GraphPass] | Mapping[str, Sequence[GraphPass]] | None = None,
    partitioner: Choice | Sequence[Choice] | Mapping[str, Choice | Sequence[Choice]] | None = None,
    constant_methods: Mapping[str, Any] | None = None,
    compile_config: EdgeCompileConfig | None = None,
    generate_etrecord: bool = False,
) -> EdgeProgramManager:
    """Bring captured programs into the edge dialect and hand parts of them to backends.

    Operators that a partitioner wants whole (`Partitioner.ops_to_not_decompose`) are not decomposed.
    `transform_passes` (for all methods, or by method name) run between `to_edge` and delegation.
    `partitioner`: one or several, applied in order, for all methods or by method name. An operator that was
    kept whole and that no backend took stays whole; `to_executorch` decomposes it if the target has no kernel
    for it. `generate_etrecord`: as in `to_edge`.
    """
    config = explicit_settings(
        compile_config, EdgeCompileConfig, "to_edge_transform_and_lower(compile_config=...)"
    )
    named = programs_by_method(programs, "to_edge_transform_and_lower")
    choices = _by_method(partitioner, named)
    most = max((len(listed) for listed in choices.values()), default=0)
    with part(_EDGE_SHARE if most else 1.0):
        manager = to_edge_for(choices, named, config, constant_methods)
    if generate_etrecord:
        manager.begin_etrecord(named)
    if transform_passes is not None:
        manager = manager.transform(transform_passes)
        manager.record_transformed()
    for index in range(most):
        with part((1.0 - _EDGE_SHARE) / most):
            manager = manager.delegated_without_report(
                {name: listed[index] for name, listed in choices.items() if index < len(listed)}
            )
    manager.log_delegation()
    return manager


def to_edge_for(
    partitioners: Mapping[str, Sequence[Partitioner]],
    programs: Mapping[str, ExportedProgram],
    config: EdgeCompileConfig,
    constant_methods: Mapping[str, Any] | None = None,
) -> EdgeProgramManager:
    """The programs in the edge dialect, with the operators whole that the partitioners of each method want
    whole; nothing is delegated yet.
    """
    with recording() as done:
        edge = {}
        for name, program in programs.items():
            with part(1 / len(programs)):
                edge[name] = _edge_program(program, config, name, partitioners.get(name, ()))
    return EdgeProgramManager(edge, constant_methods, config, done.steps)


def _edge_program(
    program: ExportedProgram, config: EdgeCompileConfig, method: str, choices: Sequence[Partitioner]
) -> ExportedProgram:
    preserved = PreservedOperators()
    if choices:
        captured = run_stage(CAPTURED, {method: program}, ToEdge(config, frozenset(), preserved))[method]
        with part(_CHOICE_SHARE), torch_failures_named(method):
            program = captured.run_decompositions({})
    for choice in choices:
        program = choice.transform_for_pre_decomposition(program)
        preserved.add(*choice.ops_to_not_decompose(program))
    with part(1.0 - _CHOICE_SHARE if choices else 1.0):
        return edge_program(program, config, method, preserved)


def _by_method(partitioner: Any, named: Mapping[str, ExportedProgram]) -> dict[str, list[Partitioner]]:
    if isinstance(partitioner, Mapping):
        unknown = sorted(partitioner.keys() - named.keys())
        if unknown:
            raise ExportError(
                f"partitioner: no method {unknown[0]!r}; methods: {sorted(named)}", method=unknown[0]
            )
        return {name: _listed(partitioner.get(name)) for name in named}
    listed = _listed(partitioner)
    return dict.fromkeys(named, listed)


def _listed(choice: Any) -> list[Partitioner]:
    if choice is None:
        return []
    # A DelegationSpec is a tuple too.
    if isinstance(choice, (list, tuple)) and not isinstance(choice, DelegationSpec):
        return [as_partitioner(each) for each in choice]
    return [as_partitioner(choice)]
