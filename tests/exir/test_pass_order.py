"""The lists of passes: rules hold after every pass, switches leave out the rows that name them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from pteron.exir import EdgeCompileConfig, ExecutorchBackendConfig
from pteron.exir.decompose.preserved_operators import PreservedOperators
from pteron.exir.edge.stages import CORE_ATEN, EDGE
from pteron.exir.edge.verify import verify
from pteron.exir.lower_program import lowering_of
from pteron.exir.pass_order import CAPTURED, FUNCTIONAL, INTO_MEMORY, STAGES, TO_CORE_ATEN, TO_EDGE, ToEdge
from pteron.exir.passes.optimizations import OPTIMIZATIONS
from pteron.exir.passes.pass_list import Row, Stage, run_stage
from pteron.exir.passes.remove_assertions import remove_assertions
from pteron.exir.passes.replace_with_edge_ops import replace_with_edge_ops
from pteron.exir.passes.run_graph_passes import copy_program
from tests.exir.small_models import CASES, captured, edge_program_of


def _to_edge(*, skip_dim_order: bool = False) -> ToEdge:
    return ToEdge(EdgeCompileConfig(_skip_dim_order=skip_dim_order), frozenset(), PreservedOperators())


def _after(row: Row[Any], program: ExportedProgram, settings: Any) -> ExportedProgram:
    return run_stage(Stage("one row", "", (row,)), {"forward": program}, settings)["forward"]


def _names(stage: Stage[Any], settings: Any) -> list[str]:
    return [row.name for row in stage.rows if row.when is None or row.when.holds(settings)]


@pytest.mark.parametrize("skip_dim_order", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_the_stage_rules_hold_after_every_pass(name: str, skip_dim_order: bool) -> None:
    settings = _to_edge(skip_dim_order=skip_dim_order)
    programs = run_stage(CAPTURED, {"forward": captured(name)}, settings)
    last = TO_CORE_ATEN.rows[-1]
    assert last.run is remove_assertions
    program = run_stage(replace(TO_CORE_ATEN, rows=TO_CORE_ATEN.rows[:-1]), programs, settings)["forward"]
    stage = CORE_ATEN
    for row in (last, *TO_EDGE.rows):
        program = _after(row, program, settings)
        if row.run is replace_with_edge_ops:
            stage = EDGE
        verify(program, stage, method=f"{name} after {row.name}")
        program.graph_module.graph.lint()
        returned = program.graph_module.graph.output_node().args[0]
        assert len(returned) == len(program.graph_signature.output_specs), row.name
    assert stage is EDGE


def test_the_dim_order_pass_is_the_only_one_to_edge_that_can_be_left_out() -> None:
    kept = _names(TO_EDGE, _to_edge(skip_dim_order=True))
    everything = [row.name for row in TO_EDGE.rows]
    assert [name for name in everything if name not in kept] == ["state_dim_order"]
    assert _names(TO_EDGE, _to_edge()) == everything


@pytest.mark.parametrize(
    ("options", "left_out", "added"),
    [
        ({}, set(), set()),
        ({"passes": lambda module: None}, set(), {"run_graph_passes"}),
        ({"optimize": False}, {"optimize_programs", "keep_operands_for_fusion"}, set()),
        ({"remove_view_copy": False}, {"replace_view_copies"}, set()),
        ({"run_reinplace_pass": False}, {"reuse_in_place"}, set()),
        (
            {"kernels": "executorch-portable"},
            {"keep_operands_for_fusion"},
            {"legalize_portable_dim_order"},
        ),
    ],
)
def test_a_switch_leaves_out_the_rows_that_name_it(
    options: dict[str, Any], left_out: set[str], added: set[str]
) -> None:
    default = {name for stage in (FUNCTIONAL, INTO_MEMORY) for name in _names(stage, _lowering())}
    now = {name for stage in (FUNCTIONAL, INTO_MEMORY) for name in _names(stage, _lowering(**options))}
    assert (default - now, now - default) == (left_out, added)


def _lowering(**options: Any) -> Any:
    return lowering_of(ExecutorchBackendConfig(**options))


def test_every_pass_says_what_it_does_and_runs_once_in_its_stage() -> None:
    for stage in STAGES:
        rows: tuple[Row[Any], ...] = stage.rows
        assert all((row.run.__doc__ or "").strip() for row in rows), stage.name
        assert len({row.name for row in rows}) == len(rows), stage.name


@pytest.mark.parametrize("name", CASES)
def test_graph_and_signature_agree_after_every_pass_over_operators(name: str) -> None:
    lowering = _lowering(remove_view_copy=False)
    program = edge_program_of(name).exported_program()
    for row in FUNCTIONAL.rows:
        if row.when is None or row.when.holds(lowering):
            program = _after(row, program, lowering)
            program.graph_module.graph.lint()
            returned = program.graph_module.graph.output_node().args[0]
            assert len(returned) == len(program.graph_signature.output_specs), row.name


@pytest.mark.parametrize("name", CASES)
def test_the_edge_rules_hold_after_every_optimisation(name: str) -> None:
    program = copy_program(edge_program_of(name).exported_program())
    for apply in OPTIMIZATIONS:
        result = apply(program)
        program = result.exported_program
        verify(program, EDGE, method=f"{name} after {apply!r}")
        program.graph_module.graph.lint()
        signature = program.graph_signature
        inputs = [node for node in program.graph_module.graph.nodes if node.op == "placeholder"]
        for spec, node in zip(signature.input_specs, inputs, strict=True):
            assert spec.kind is InputKind.USER_INPUT or spec.arg.name == node.name
        assert len(program.graph_module.graph.output_node().args[0]) == len(signature.output_specs)
    again = [apply(program).modified for apply in OPTIMIZATIONS]
    assert not any(again), f"{name}: a second run changes something: {again}"
