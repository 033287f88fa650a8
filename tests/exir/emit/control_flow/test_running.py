"""Loops while they run: limits, debug information, what is not copied."""

from __future__ import annotations

import numpy as np
import pytest

import pteron
from pteron.exir import schema
from tests.exir.loop_models import CASES, buffer_of, edge_program_of


def test_a_call_that_was_stopped_in_a_loop_leaves_nothing_behind() -> None:
    method = pteron.load(buffer_of("map_several")).load_method("forward")
    inputs = [value.numpy() for value in CASES["map_several"].more_args[1]]
    whole = method(*inputs)
    with pytest.raises(pteron.LimitExceeded, match="instruction budget"):
        method.execute(inputs, budget=20)
    for got, want in zip(method(*inputs), whole, strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_loop_without_end_stops_at_its_deadline() -> None:
    method = pteron.load(buffer_of("countdown")).load_method("forward")
    x = np.zeros((1, 4), np.float32)
    with pytest.raises(pteron.DeadlineExceeded):
        method.execute([x, np.array(2**60)], deadline=0.05, budget=2**40)
    count, _ = method(x, np.array(2))
    assert count == 2


def test_every_instruction_of_a_loop_has_a_debug_handle() -> None:
    manager = edge_program_of("nested").to_executorch()
    [plan] = manager.executorch_program.execution_plan
    handles = manager.debug_handle_map["forward"]
    assert sorted(handles) == list(range(len(plan.chains[0].instructions)))


def test_branches_and_iterations_write_their_results_where_they_belong() -> None:
    [plan] = edge_program_of("nested").to_executorch().executorch_program.execution_plan
    steps = [step.instr_args for step in plan.chains[0].instructions]
    assert not [step for step in steps if isinstance(step, schema.MoveCall)]
    # The counters of scan and map go back to 0 behind the loop.
    calls = [plan.operators[step.op_index].name for step in steps if isinstance(step, schema.KernelCall)]
    assert calls.count("executorch_prim::sub") == 2


def test_an_error_in_a_body_names_its_instruction_and_line() -> None:
    method = pteron.load(buffer_of("recurrent")).load_method("forward")
    x, hidden, steps = (value.numpy() for value in CASES["recurrent"].args)
    with pytest.raises(pteron.LimitExceeded, match=r"instruction \d+.*loop_models\.py:\d+"):
        method.execute([x, hidden, steps], budget=12)
