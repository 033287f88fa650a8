"""After every pass on the way to the edge dialect, the graph obeys the rules of the stage that it is in."""

from __future__ import annotations

import pytest

from exir.small_models import CASES, captured
from pteron.exir.edge.stages import CORE_ATEN, EDGE
from pteron.exir.edge.verify import verify
from pteron.exir.edge_program import core_aten_program
from pteron.exir.passes.pass_order import BEFORE_CORE_ATEN_CHECK, CORE_ATEN_TO_EDGE, passes_to_edge
from pteron.exir.passes.replace_with_edge_ops import replace_with_edge_ops
from pteron.exir.preserved_operators import PreservedOperators


@pytest.mark.parametrize("skip_dim_order", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_the_stage_rules_hold_after_every_pass(name: str, skip_dim_order: bool) -> None:
    program = core_aten_program(captured(name), set(), PreservedOperators())
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
