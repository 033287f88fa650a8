"""What control flow is taken for before it becomes instructions: descriptions, bodies, lifetimes."""

from __future__ import annotations

import pytest
import torch
from torch._higher_order_ops.map import map as map_over

from pteron.exir import EdgeProgramManager
from pteron.exir.edge.control_flow import (
    BodyKind,
    ControlFlow,
    Meaning,
    control_flows,
    graph_modules,
)
from pteron.exir.edge.tensor_spec import TensorSpec
from pteron.exir.memory.spec_lifetimes import spec_lifetimes, specs_in
from pteron.exir.passes.give_calls_own_bodies import give_calls_own_bodies
from pteron.exir.passes.run_graph_passes import copy_program
from pteron.exir.passes.separate_loop_values import separate_loop_values
from pteron.exir.passes.spec_prop_pass import SpecPropPass
from tests.exir.loop_models import CASES, edge_program_of
from tests.exir.small_models import PORTABLE


def _only(name: str) -> ControlFlow:
    [call] = control_flows(edge_program_of(name).exported_program().graph_module)
    return call


def _meanings(call: ControlFlow) -> str:
    return " ".join(parameter.meaning.value for parameter in call.bodies[-1].parameters)


def test_map_gives_rows_and_captures() -> None:
    call = _only("map_several")
    assert (call.kind, call.is_loop, call.stacked_from) == ("map_impl", True, 0)
    assert _meanings(call) == "row row captured captured captured"
    assert [parameter.operand for parameter in call.iteration.having(Meaning.ROW)] == list(call.mapped)
    assert len(call.iteration.results) == 2


def test_scan_carries_first() -> None:
    call = _only("recurrent")
    assert (call.kind, call.stacked_from, len(call.initial), len(call.mapped)) == ("scan", 2, 2, 1)
    assert _meanings(call) == "carried carried row captured captured captured"
    # The extent that the body captures is a number, not a tensor.
    assert isinstance(call.captured[-1].meta["val"], torch.SymInt)
    assert len(call.iteration.results) == 4


def test_a_condition_sees_what_the_iteration_sees() -> None:
    call = _only("countdown")
    condition, iteration = call.bodies
    assert (condition.kind, iteration.kind) == (BodyKind.CONDITION, BodyKind.ITERATION)
    assert [p.operand for p in condition.parameters] == [p.operand for p in iteration.parameters]
    assert call.stacked_from == len(iteration.results) == 2


def test_an_associative_scan_carries_what_it_combines() -> None:
    call = _only("associative_dynamic")
    assert _meanings(call) == "carried carried row row captured"
    assert call.initial == call.mapped
    assert call.stacked_from == 0


def test_bodies_come_after_their_callers_each_once() -> None:
    module = edge_program_of("nested").exported_program().graph_module
    found = list(graph_modules(module))
    # cond(scan(while_loop(cond), ...), plain) and a map after it.
    assert len(found) == len(set(map(id, found))) == 9
    assert found[0] is module
    for caller in found:
        for call in control_flows(caller):
            for body in call.bodies:
                assert found.index(body.module) > found.index(caller)


def test_a_body_that_two_calls_run_is_copied() -> None:
    class Twice(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            first = map_over(lambda row: row.exp() + 1, x)
            second = map_over(lambda row: row.exp() + 1, y.relu())
            return first, second

    from pteron.exir import to_edge

    torch._dynamo.reset()
    args = (torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0], [-4.0]]))
    edge = to_edge(torch.export.export(Twice(), args))
    module = edge.exported_program().graph_module
    first, second = (node for node in module.graph.nodes if node.target is torch.ops.higher_order.map_impl)
    second.update_arg(0, first.args[0])
    module.graph.eliminate_dead_code()
    module.recompile()
    program = copy_program(edge.exported_program())
    give_calls_own_bodies(program)
    bodies = [call.iteration.module for call in control_flows(program.graph_module)]
    assert bodies[0] is not bodies[1]
    # And the whole way: each call has places of its own in memory.
    import pteron

    method = pteron.load(EdgeProgramManager(edge.exported_program()).to_executorch(PORTABLE).buffer)
    for got, want in zip(method.run("forward", *(a.numpy() for a in args)), Twice()(*args), strict=True):
        torch.testing.assert_close(torch.as_tensor(got), want)


def _planned_specs(name: str) -> tuple[torch.fx.GraphModule, ControlFlow]:
    program = copy_program(edge_program_of(name).exported_program())
    separate_loop_values(program)
    SpecPropPass(program.range_constraints)(program.graph_module)
    [call] = control_flows(program.graph_module)
    return program.graph_module, call


@pytest.mark.parametrize("name", ["map_several", "recurrent", "countdown", "associative", "scan_swap"])
def test_what_lives_across_iterations_shares_no_memory_with_an_iteration(name: str) -> None:
    module, call = _planned_specs(name)
    lifetimes = spec_lifetimes(module.graph, frozenset())
    across = {spec.root for spec in specs_in(call.node.meta["spec"])}
    for parameter in call.iteration.parameters:
        if parameter.meaning is not Meaning.ROW:
            across |= {spec.root for spec in specs_in(parameter.placeholder.meta["spec"])}
    inside = {
        spec.root
        for body in call.bodies
        for node in body.module.graph.nodes
        for spec in specs_in(node.meta.get("spec"))
    } - across
    first = min(lifetimes[spec][0] for spec in inside)
    last = max(lifetimes[spec][1] for spec in inside)
    for spec in across:
        assert lifetimes[spec][0] < first
        assert lifetimes[spec][1] > last


def test_a_value_is_computed_where_it_is_carried_if_its_old_value_was_read() -> None:
    _, call = _planned_specs("recurrent")
    carried = call.iteration.having(Meaning.CARRIED)
    hidden, steps = (call.iteration.results[p.position].meta["spec"] for p in carried)
    kept = [p.placeholder.meta["spec"] for p in carried]
    assert isinstance(kept[0], TensorSpec)
    # `hidden` is also stacked as it was before, which is read last.
    assert hidden.root is not kept[0]
    # steps + 1 reads the old value while it writes the new one.
    assert steps.root is not kept[1]
    _, call = _planned_specs("countdown")
    [counter, value] = call.iteration.having(Meaning.CARRIED)
    made = call.iteration.results[value.position].meta["spec"]
    assert made.root is value.placeholder.meta["spec"]
    # The counter starts as zeros that nothing else reads: they are made in its place.
    assert counter.operand.meta["spec"].root is counter.placeholder.meta["spec"]
    # The value starts as an input, which keeps its own place.
    assert value.operand.meta["spec"].root is not value.placeholder.meta["spec"]


def test_a_carried_value_that_becomes_another_is_cloned() -> None:
    program = copy_program(edge_program_of("scan_swap").exported_program())
    [call] = control_flows(program.graph_module)
    carried = call.iteration.having(Meaning.CARRIED)
    # As if the model returned the values themselves, which PyTorch's front end refuses.
    results = call.iteration.results
    results[0], results[2] = carried[1].placeholder, carried[2].placeholder
    call.iteration.module.graph.output_node().args = (tuple(results),)
    separate_loop_values(program)
    swapped, _, kept, *_ = call.iteration.results
    assert swapped is not carried[1].placeholder
    assert swapped.args[0] is carried[1].placeholder
    assert kept is carried[2].placeholder


def test_the_table_has_every_kind() -> None:
    kinds = {
        call.kind
        for name in CASES
        for module in graph_modules(edge_program_of(name).exported_program().graph_module)
        for call in control_flows(module)
    }
    assert kinds == {"cond", "map_impl", "scan", "while_loop", "associative_scan"}
