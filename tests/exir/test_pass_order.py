"""After every pass, the graph obeys the rules of the stage that it is in."""

from __future__ import annotations

import pytest
from torch.export.graph_signature import InputKind

from pteron.exir.edge.stages import CORE_ATEN, EDGE
from pteron.exir.edge.verify import verify
from pteron.exir.edge_program import core_aten_program
from pteron.exir.passes.pass_order import (
    BEFORE_CORE_ATEN_CHECK,
    CORE_ATEN_TO_EDGE,
    OPTIMIZATIONS,
    passes_to_edge,
)
from pteron.exir.passes.replace_with_edge_ops import replace_with_edge_ops
from pteron.exir.passes.run_graph_passes import copy_program
from pteron.exir.preserved_operators import PreservedOperators
from tests.exir.small_models import CASES, captured, edge_program_of


@pytest.mark.parametrize("skip_dim_order", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_the_stage_rules_hold_after_every_pass(name: str, skip_dim_order: bool) -> None:
    program = core_aten_program(captured(name), set(), PreservedOperators(), "forward")
    stage = CORE_ATEN
    for apply in (*BEFORE_CORE_ATEN_CHECK, *passes_to_edge(skip_dim_order=skip_dim_order)):
        apply(program)
        if apply is replace_with_edge_ops:
            stage = EDGE
        verify(program, stage, method=f"{name} after {apply.__name__}")
        program.graph_module.graph.lint()
        returned = program.graph_module.graph.output_node().args[0]
        assert len(returned) == len(program.graph_signature.output_specs), apply.__name__
    assert stage is EDGE


def test_the_dim_order_pass_is_the_only_one_that_can_be_left_out() -> None:
    left_out = set(CORE_ATEN_TO_EDGE) - set(passes_to_edge(skip_dim_order=True))
    assert [each.__name__ for each in left_out] == ["state_dim_order"]
    assert passes_to_edge(skip_dim_order=False) == CORE_ATEN_TO_EDGE


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
