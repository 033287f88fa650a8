"""ExecuTorch's memory planning over a graph module, and its settings in `to_executorch`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from pteron.compat.executorch.exir import ExecutorchBackendConfig, to_edge
from pteron.compat.executorch.exir.banked_memory_planning import (
    Bank,
    BankedGreedy,
    BankPlacementError,
    TargetMemoryMap,
    banked_memory_planning_pass,
)
from pteron.compat.executorch.exir.error import InternalError
from pteron.compat.executorch.exir.memory_planning import (
    MemoryPlanningAlgorithmSuite,
    Verifier,
    apply_algo,
    collect_specs_from_nodes,
    get_node_tensor_specs,
    greedy,
    naive,
    pick_shared_obj,
)
from pteron.compat.executorch.exir.pass_manager import PassManager
from pteron.compat.executorch.exir.passes import MemoryPlanningPass, SpecPropPass, ToOutVarPass
from pteron.compat.executorch.exir.tensor import TensorSpec
from torch.export import export

from pteron.errors import ExportError

EMPTY = torch.fx.GraphModule({}, torch.fx.Graph())


class Chain(torch.nn.Module):
    """Five results of 64 bytes, of which two are in use at a time."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(5):
            x = torch.sin(x)
        return x


class Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(x)
        return self.count * 2


def out_variants(model: torch.nn.Module, *inputs: torch.Tensor) -> torch.fx.GraphModule:
    edge = to_edge(export(model.eval(), inputs)).exported_program().graph_module
    return PassManager([SpecPropPass(), ToOutVarPass()])(edge).graph_module


def spec(nbytes: int, first: int, last: int, **stated: Any) -> TensorSpec:
    made = TensorSpec(torch.uint8, [nbytes])
    made.realign(1)
    made.lifetime = [first, last]
    for name, value in stated.items():
        setattr(made, name, value)
    return made


def suite(*algorithms: Callable[..., Any]) -> MemoryPlanningAlgorithmSuite:
    return MemoryPlanningAlgorithmSuite(list(algorithms))


def test_greedy_reuses_what_naive_does_not() -> None:
    sizes = {}
    for algorithm in (naive, greedy):
        graph = out_variants(Chain(), torch.ones(16))
        MemoryPlanningPass(suite(algorithm)).run(graph)
        sizes[algorithm] = graph.meta["non_const_buffer_sizes"]
        pairs = Verifier(graph, True, True, True).verify_storage_reuse()
        assert (pairs > 0) == (algorithm is greedy)
    assert sizes == {naive: [0, 6 * 64], greedy: [0, 2 * 64]}


def test_a_suite_takes_the_smaller_plan_and_the_first_of_equal_ones() -> None:
    graph = out_variants(Chain(), torch.ones(16))
    MemoryPlanningPass(suite(naive, greedy)).run(graph)
    assert graph.meta["non_const_buffer_sizes"] == [0, 128]
    one = spec(8, 0, 1)
    other = functools.partial(greedy, allow_overlapping_allocations=False)
    assert suite(other, greedy)(1, [one], EMPTY, None, 0) == [0, 8]
    assert (one.mem_id, one.mem_obj_id, one.mem_offset) == (1, 0, 0)


def test_allocations_get_the_specs_of_results() -> None:
    graph = out_variants(Chain(), torch.ones(16))
    MemoryPlanningPass().run(graph)
    sines = [node for node in graph.graph.nodes if node.target is torch.ops.aten.sin.out]
    assert len(sines) == 5
    for node in sines:
        assert node.kwargs["out"].meta["spec"] is node.meta["spec"]
        assert node.meta["spec"].mem_offset in (0, 64)


@pytest.mark.parametrize(("is_allowed", "objects"), [(True, 1), (False, 2)])
def test_specs_in_use_together_share_an_object_only_where_that_is_allowed(
    is_allowed: bool, objects: int
) -> None:
    shared: list[Any] = []
    pick_shared_obj(shared, spec(64, 0, 1), is_allowed)
    pick_shared_obj(shared, spec(16, 2, 4), is_allowed)
    placed = pick_shared_obj(shared, spec(16, 3, 5), is_allowed)
    assert len(shared) == objects
    assert placed.allocations[-1].offset == (16 if is_allowed else 0)


def test_the_verifier_finds_bytes_that_two_specs_in_use_together_share() -> None:
    graph = out_variants(Chain(), torch.ones(16))
    MemoryPlanningPass().run(graph)
    first, second = list(collect_specs_from_nodes(graph.graph.nodes))[:2]
    second.mem_offset, second.mem_obj_id = first.mem_offset, first.mem_obj_id
    verifier = Verifier(graph, True, True, True)
    with pytest.raises(InternalError, match="Unexpected storage overlap"):
        verifier.verify_storage_reuse()
    assert verifier.verify_storage_reuse(allow_lifetime_and_storage_overlap=True) > 0


def test_the_verifier_finds_outputs_planned_against_the_settings() -> None:
    graph = out_variants(Chain(), torch.ones(16))
    MemoryPlanningPass(alloc_graph_output=False).run(graph)
    assert get_node_tensor_specs(graph.graph.output_node())[0].mem_offset is None
    with pytest.raises(AssertionError, match="Misallocate graph output"):
        Verifier(graph, True, True, True).verify_graph_input_output()


def test_banks_are_filled_from_the_fastest_and_refuse_what_fits_nowhere() -> None:
    target = TargetMemoryMap([Bank("fast", 64, 2), Bank("slow", 96, 1)])
    large, small, pinned = spec(80, 0, 2), spec(48, 1, 2), spec(16, 1, 1, mem_id=2)
    assert suite(BankedGreedy(target))(1, [small, pinned, large], EMPTY, None, 0) == [0, 80, 64]
    assert [each.mem_id for each in (large, small, pinned)] == [1, 2, 2]
    with pytest.raises(BankPlacementError, match="No declared bank can hold a 97-byte buffer"):
        BankedGreedy(target)(1, [spec(97, 0, 1)], EMPTY)
    with pytest.raises(BankPlacementError, match="pinned to bank fast"):
        BankedGreedy(target)(1, [spec(65, 0, 1, mem_id=2)], EMPTY)
    with pytest.raises(BankPlacementError, match="not a multiple"):
        BankedGreedy(TargetMemoryMap([Bank("odd", 64, 1, alignment=24)]))(16, [], EMPTY)


def test_one_bank_is_planned_as_greedy_plans() -> None:
    plans = []
    target = TargetMemoryMap([Bank("all", 1 << 20, 1)])
    for planning in (banked_memory_planning_pass(target), MemoryPlanningPass()):
        graph = out_variants(Chain(), torch.ones(16))
        planning.run(graph)
        specs = collect_specs_from_nodes(graph.graph.nodes)
        plans.append([(each.mem_id, each.mem_obj_id, each.mem_offset) for each in specs])
    assert plans[0] == plans[1]


def test_a_spec_must_fit_into_the_planned_spec_that_it_lies_in() -> None:
    base = spec(16, 0, 1)
    inside = spec(8, 0, 1, storage_base=base, storage_base_offset=12)
    with pytest.raises(InternalError, match="must fit within storage_base"):
        greedy(1, [base, inside], EMPTY, None)
    with pytest.raises(InternalError, match="unresolvable storage_base"):
        greedy(1, [inside], EMPTY, None)
    with pytest.raises(InternalError, match="use greedy"):
        naive(1, [base, inside], EMPTY, None)


def test_results_of_in_place_operators_are_their_operands() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    negated = graph.call_function(torch.ops.aten.neg_.default, (x,))
    read = graph.call_function(torch.ops.aten.sin_.default, (negated,))
    graph.output((read,))
    for node in (x, negated, read):
        node.meta["spec"] = TensorSpec(torch.float32, [4])
    module = torch.fx.GraphModule({}, graph)
    assert apply_algo(suite(greedy), module, 16) == [0, 16]
    assert negated.meta["spec"] is x.meta["spec"]
    assert read.meta["spec"] is x.meta["spec"]
    assert x.meta["spec"].lifetime == [0, 3]


def test_bodies_lie_in_front_of_the_graph_that_calls_them() -> None:
    class Branches(torch.nn.Module):
        def forward(self, flag: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(flag, lambda x: torch.sin(torch.sin(x)), torch.cos, (x,))

    graph = out_variants(Branches(), torch.tensor(True), torch.ones(16))
    MemoryPlanningPass(suite(naive)).run(graph)
    bodies = [
        module.meta["non_const_buffer_sizes"]
        for name, module in graph.named_modules()
        if name and isinstance(module, torch.fx.GraphModule)
    ]
    # Two results in the one, one in the other; the caller has a flag, an input and a result.
    assert sorted(bodies) == [[0, 64], [0, 128]]
    assert graph.meta["non_const_buffer_sizes"] == [0, 128 + 16 + 64 + 64]


def test_buffers_of_several_graphs_lie_at_one_place() -> None:
    planning = MemoryPlanningPass(share_mutable_buffers=True)
    graphs = []
    for _ in range(2):
        program = to_edge(export(Counter(), (torch.ones(4),))).exported_program()
        graph = PassManager([SpecPropPass(), ToOutVarPass()])(program.graph_module).graph_module
        planning.run(graph, program.graph_signature)
        graphs.append(graph)
    planning.run_multimethod()
    for graph in graphs:
        buffer = next(iter(graph.graph.nodes)).meta["spec"]
        assert (buffer.mem_id, buffer.mem_offset) == (2, 0)
        assert graph.meta["non_const_buffer_sizes"][2] == 16


def planned_sizes(planning: MemoryPlanningPass, model: torch.nn.Module | None = None) -> list[int]:
    edge = to_edge(export(model or Chain(), (torch.ones(16 if model is None else 4),)))
    program = edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))
    return program.executorch_program.execution_plan[0].non_const_buffer_sizes


def test_programs_are_planned_with_the_algorithm_given() -> None:
    assert planned_sizes(MemoryPlanningPass(suite(naive))) > planned_sizes(MemoryPlanningPass(suite(greedy)))
    assert planned_sizes(MemoryPlanningPass()) <= planned_sizes(MemoryPlanningPass(suite(greedy)))


def test_a_subclass_sets_memories_of_a_programs_specs() -> None:
    class Pools(MemoryPlanningPass):
        def run(self, graph_module: Any, graph_signature: Any = None) -> Any:
            for node in graph_module.graph.nodes:
                if node.op == "call_function" and "sin" in str(node.target):
                    node.meta["spec"].mem_id = 3
            return super().run(graph_module, graph_signature)

    sizes = planned_sizes(Pools(suite(greedy)))
    assert len(sizes) == 4
    assert sizes[1] == 64
    assert sizes[2] == 0
    assert sizes[3] > 0


def test_programs_fill_banks() -> None:
    target = TargetMemoryMap([Bank("fast", 64, 1), Bank("slow", 1 << 20, 2)])
    sizes = planned_sizes(banked_memory_planning_pass(target))
    assert sizes[:2] == [0, 64]
    assert sizes[2] > 0
    with pytest.raises(BankPlacementError, match="No declared bank"):
        planned_sizes(banked_memory_planning_pass(TargetMemoryMap([Bank("fast", 64, 1)])))


def test_a_plan_that_lets_tensors_in_use_together_share_bytes_is_refused() -> None:
    def all_at_once(alignment: int, specs: Any, *_: Any) -> list[int]:
        for each in specs:
            each.mem_id, each.mem_offset = 1, 0
        return [0, 64]

    with pytest.raises(ExportError, match="on the same bytes while both are in use"):
        planned_sizes(MemoryPlanningPass(all_at_once))


def test_settings_and_plans_of_programs_are_checked() -> None:
    with pytest.raises(InternalError, match="alloc_mutable_buffers=False") as refused:
        planned_sizes(MemoryPlanningPass(alloc_mutable_buffers=False), Counter())
    assert isinstance(refused.value, ExportError)
    with pytest.raises(ExportError, match="returned 0 offsets for"):
        planned_sizes(MemoryPlanningPass(lambda *_: [0, 0]))
    with pytest.raises(ValueError, match="only meaningful"):
        MemoryPlanningPass(alloc_mutable_buffers=False, share_mutable_buffers=True)
