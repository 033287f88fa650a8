"""The front door of the compile half: `to_edge` and the managers of a program's methods."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from torch.export import ExportedProgram

from pteron.errors import ExportError
from pteron.exir.backend.backend_api import MethodProgramsPartitionerSpec, to_backend
from pteron.exir.backend.delegated_graph import collect_named_data_store_from_exported_program
from pteron.exir.backend.delegation_report import DelegationReport, delegation_report
from pteron.exir.backend.lowered_backend_module import set_lowering
from pteron.exir.backend.named_data_store import NamedDataStore
from pteron.exir.backend.program_copy import copy_with_own_state
from pteron.exir.config.backend_config import ExecutorchBackendConfig
from pteron.exir.config.compile_config import EdgeCompileConfig
from pteron.exir.config.explicit_settings import explicit_settings
from pteron.exir.edge.stages import EDGE
from pteron.exir.edge.verify import EdgeDialectVerifier, verify
from pteron.exir.edge_program import edge_program
from pteron.exir.executorch_program_manager import ExecutorchProgramManager
from pteron.exir.lower_program import lower_programs
from pteron.exir.lowering_report import LoweringReport, LoweringStep, Recorder, calls_of, recording
from pteron.exir.method_map import DEFAULT_METHOD, programs_by_method
from pteron.exir.passes.in_edge_dialect import in_edge_dialect
from pteron.exir.passes.run_graph_passes import GraphPass, graph_passes, run_held_passes
from pteron.exir.progress import part, progress_of, step

if TYPE_CHECKING:
    from pteron.devtools.etrecord import ETRecord

_log = logging.getLogger(__name__)


@progress_of("to_edge")
def to_edge(
    programs: ExportedProgram | Mapping[str, ExportedProgram],
    constant_methods: Mapping[str, Any] | None = None,
    compile_config: EdgeCompileConfig | None = None,
    generate_etrecord: bool = False,
) -> EdgeProgramManager:
    """Bring captured programs into the edge dialect.

    `programs`: one `torch.export.ExportedProgram`, which becomes method "forward", or one per method name.
    `constant_methods`: name → value (tensor, number, string, or a nest of them) that a method of that name
    returns. The programs given are left as they were.

    A model that updates its own buffers keeps them between runs. A model that updates an *input* in place
    (`x.add_(1)`) computes with the new value, but at run time the caller's array stays as it was, unlike in
    eager mode: return the new value where the caller needs it. `to_executorch` logs a warning about such
    inputs.

    `generate_etrecord`: keep what tools need to explain a run, for `get_etrecord` of the manager that
    `to_executorch` gives.

    Raises `ExportError` and its children; `TypeError` where `programs` or an option is of another type.
    """
    config = explicit_settings(compile_config, EdgeCompileConfig, "to_edge(compile_config=...)")
    named = programs_by_method(programs, "to_edge")
    with recording() as done:
        edge = {}
        for name, program in named.items():
            with part(1 / len(named)):
                edge[name] = edge_program(program, config, name)
    manager = EdgeProgramManager(edge, constant_methods, config, done.steps)
    if generate_etrecord:
        manager.begin_etrecord(named)
    return manager


class EdgeProgramManager:
    """The methods of one program in the edge dialect. Its operations return a new manager."""

    def __init__(
        self,
        edge_programs: ExportedProgram | Mapping[str, ExportedProgram],
        constant_methods: Mapping[str, Any] | None = None,
        compile_config: EdgeCompileConfig | None = None,
        lowering: Sequence[LoweringStep] = (),
    ) -> None:
        """`lowering`: what was done to the programs before, for `lowering_report`."""
        self._edge_programs = programs_by_method(edge_programs, "EdgeProgramManager")
        for name, program in self._edge_programs.items():
            _require_edge_dialect(program, name)
        self._constant_methods = _constant_methods(constant_methods)
        self.compile_config = explicit_settings(
            compile_config, EdgeCompileConfig, "EdgeProgramManager(compile_config=...)"
        )
        self._etrecord: ETRecord | None = None
        self._lowering = tuple(lowering)
        twice = sorted(self._edge_programs.keys() & self._constant_methods.keys())
        if twice:
            raise ExportError(f"method {twice[0]!r} is both a program and a constant method", method=twice[0])

    def __repr__(self) -> str:
        methods = ", ".join(
            f"{name}: {len(each.graph.nodes):,} nodes" for name, each in self._edge_programs.items()
        )
        constants = (
            f"; constant methods {', '.join(self._constant_methods)}" if self._constant_methods else ""
        )
        return f"<EdgeProgramManager of {methods}{constants}>"

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p>{self.lowering_report()._repr_html_()}"

    def begin_etrecord(self, programs: Mapping[str, ExportedProgram]) -> None:
        """Keep the captured programs and the edge programs of now for `ExecutorchProgramManager.get_etrecord`
        of what is made of this manager.
        """
        from pteron.devtools.etrecord import ETRecord

        self._etrecord = ETRecord()
        self._etrecord.add_exported_program(programs)
        self._etrecord.add_edge_dialect_program(self)

    def record_transformed(self) -> None:
        """Keep the edge programs of now beside those from before, where a record was begun."""
        if self._etrecord is not None:
            copies = {name: copy_with_own_state(each) for name, each in self._edge_programs.items()}
            manager = EdgeProgramManager(copies, self._constant_methods, self.compile_config, self._lowering)
            self._etrecord.add_extra_export_modules({"edge_after_transform": manager})

    def _next(
        self, programs: Mapping[str, ExportedProgram], config: EdgeCompileConfig, done: Recorder
    ) -> EdgeProgramManager:
        """The manager of a later stage, and what was done on the way there."""
        lowering = (*self._lowering, *done.steps)
        manager = EdgeProgramManager(programs, self._constant_methods, config, lowering)
        manager._etrecord = self._etrecord
        return manager

    @property
    def methods(self) -> set[str]:
        """Names of the methods that run a graph."""
        return set(self._edge_programs)

    @property
    def config_methods(self) -> set[str]:
        """Names of the methods that return a constant."""
        return set(self._constant_methods)

    @property
    def _config_methods(self) -> dict[str, Any]:
        """Method → the constant that it returns, for passes that add some."""
        return self._constant_methods

    @property
    def _named_data_store(self) -> NamedDataStore:
        """What the delegates of all methods put beside their blobs; ExecuTorch's tools ask for it by this
        name.
        """
        store = NamedDataStore()
        for program in self._edge_programs.values():
            collect_named_data_store_from_exported_program(program, store)
        return store

    def exported_program(self, method_name: str = DEFAULT_METHOD) -> ExportedProgram:
        """The edge program of a method; KeyError that lists the methods where there is none of that name."""
        try:
            return self._edge_programs[method_name]
        except KeyError:
            raise KeyError(f"no method {method_name!r}; methods: {sorted(self._edge_programs)}") from None

    def transform(
        self,
        passes: GraphPass | Sequence[GraphPass] | Mapping[str, Sequence[GraphPass]],
        compile_config: EdgeCompileConfig | None = None,
    ) -> EdgeProgramManager:
        """Run graph passes over all methods, or over the methods that a dict names.

        A pass takes a `GraphModule` and returns a `PassResult`, or None when it changed the module in place.
        """
        config = (
            explicit_settings(compile_config, EdgeCompileConfig, "transform(compile_config=...)")
            if compile_config is not None
            else self.compile_config
        )
        per_method: Mapping[str, Sequence[GraphPass]]
        if isinstance(passes, Mapping):
            unknown = sorted(passes.keys() - self._edge_programs.keys())
            if unknown:
                raise ExportError(
                    f"transform: no method {unknown[0]!r}; methods: {sorted(self._edge_programs)}"
                )
            per_method = {
                name: graph_passes(chosen, f"transform, method {name!r}") for name, chosen in passes.items()
            }
        else:
            per_method = dict.fromkeys(self._edge_programs, graph_passes(passes, "transform"))
        changed = dict(self._edge_programs)
        with recording() as done:
            for name, chosen in per_method.items():
                changed[name] = _run_passes(changed[name], chosen, name, done)
                if config._check_ir_validity:
                    verify(changed[name], EDGE, method=name)
        return self._next(changed, config, done)

    @progress_of("to_backend")
    def to_backend(self, partitioner: Any) -> EdgeProgramManager:
        """Hand parts of the methods to backends.

        `partitioner`: a `Partitioner` (instance or class) or a `DelegationSpec` for all methods, or a dict
        from method name to one of them; methods that the dict does not name stay as they are. Where
        something stays in the runtime, one line in the log (a warning of `pteron.exir.program`) says what and
        why.
        """
        lowered = self.delegated_without_report(partitioner)
        lowered.log_delegation()
        return lowered

    def delegated_without_report(self, partitioner: Any) -> EdgeProgramManager:
        """`to_backend` without its line in the log, for callers that run several partitioners in a row."""
        per_method = (
            dict(partitioner)
            if isinstance(partitioner, Mapping)
            else dict.fromkeys(self._edge_programs, partitioner)
        )
        step(f"partitions of {', '.join(map(repr, sorted(per_method)))}")
        with recording() as done:
            lowered = to_backend(MethodProgramsPartitionerSpec(dict(self._edge_programs), per_method))
        return self._next({**self._edge_programs, **lowered}, self.compile_config, done)

    def delegation_report(self) -> DelegationReport:
        """What went to which backend, what stays in the runtime and why, for each method.

        `str()` is a table, `to_json()`, `to_dict()` and `to_dataframe()` give it to programs, and
        `report[method]` is the report of one method.
        """
        return DelegationReport(
            {name: delegation_report(program) for name, program in self._edge_programs.items()}
        )

    def lowering_report(self) -> LoweringReport:
        """What each pass, partitioner and backend did since `to_edge`: calls before and after by
        operator, and time.

        `str()` is a table, notebooks show one, `to_json()`, `to_dict()` and `to_dataframe()` give it to
        programs.
        """
        return LoweringReport(self._lowering)

    def log_delegation(self) -> None:
        """Log the report's summary, one line, if a partitioner ran and something stayed in the runtime."""
        report = self.delegation_report()
        asked = DelegationReport({name: each for name, each in report.items() if each.partitioners})
        if any(each.left for each in asked.values()):
            # A warning, so that it is seen without logging being set up: what stays is often a surprise.
            _log.warning("%s; delegation_report() has it all", asked.summary())

    @progress_of("to_executorch")
    def to_executorch(self, config: ExecutorchBackendConfig | None = None) -> ExecutorchProgramManager:
        """Plan memory and emit the program.

        Operators that were kept whole for a backend which then did not take them stay whole where the target
        has a kernel for them, and are decomposed where it has none.

        Raises `UnsupportedProgramError` that lists every operator, element type or shape which cannot be
        written, or which the target of `config.kernels` cannot run, with its source line.
        """
        config = explicit_settings(config, ExecutorchBackendConfig, "to_executorch(config=...)")
        config.require_methods(self._edge_programs)
        with recording() as done:
            emitted, planned = lower_programs(
                self._edge_programs, self._constant_methods, config, self.compile_config
            )
        lowering = (*self._lowering, *done.steps)
        manager = ExecutorchProgramManager(emitted, planned, self._constant_methods, config, lowering)
        if self._etrecord is not None:
            manager.take_etrecord(self._etrecord.copy())
        return manager


def _require_edge_dialect(program: ExportedProgram, method: str) -> None:
    if program.dialect != EdgeDialectVerifier.dialect:
        raise ExportError(
            f"EdgeProgramManager: expected programs in the edge dialect, got dialect {program.dialect!r}",
            method=method,
            expected=EdgeDialectVerifier.dialect,
            got=program.dialect,
            hint="to_edge(program) brings it there and makes the manager",
        )


def _constant_methods(given: Any) -> dict[str, Any]:
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(
            "constant_methods: expected a dict from method name to value, "
            f"got {type(given).__name__} {given!r}"
        )
    return dict(given or {})


def _run_passes(
    program: ExportedProgram, passes: Sequence[GraphPass], method: str, done: Recorder
) -> ExportedProgram:
    before = calls_of(program)
    with done.timed() as seconds:
        changed = in_edge_dialect(run_held_passes(program, passes))
    names = ", ".join(getattr(each, "__name__", type(each).__name__) for each in passes)
    done.add("transform", names, method, seconds[0], (before, calls_of(changed)))
    return changed


def _lower_one(program: ExportedProgram, **options: Any) -> ExecutorchProgramManager:
    """The complete program of one edge program; `options` are fields of `ExecutorchBackendConfig`."""
    return EdgeProgramManager(program).to_executorch(ExecutorchBackendConfig(**options))


set_lowering(_lower_one)
