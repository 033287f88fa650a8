"""Lifetimes and placement."""

from __future__ import annotations

import random as random_numbers

import hypothesis
import pytest
import torch
from hypothesis import strategies as st

from pteron.errors import ExportError
from pteron.exir import ExecutorchBackendConfig
from pteron.exir.edge.tensor_spec import TensorSpec
from pteron.exir.lower_program import functional_programs, lowering_of, plan_programs
from pteron.exir.memory.algorithms import (
    MemoryPlanningAlgorithmSuite,
    greedy,
    naive,
    require_valid_plan,
    search,
)
from pteron.exir.memory.lifetime import Lifetime, lower_bound, neighbours, peak
from pteron.exir.memory.memory_planning_pass import MemoryPlanningPass
from pteron.exir.memory.spec_lifetimes import spec_lifetimes
from tests.exir.small_models import PORTABLE, edge_of, edge_program_of, random

_LIFETIMES = st.lists(
    st.builds(
        lambda nbytes, first, length: Lifetime(nbytes, first, first + length),
        st.integers(0, 5000),
        st.integers(0, 30),
        st.integers(0, 12),
    ),
    max_size=40,
)


@pytest.mark.parametrize("algorithm", [greedy, naive, search, MemoryPlanningAlgorithmSuite([naive, greedy])])
@hypothesis.given(lifetimes=_LIFETIMES, alignment=st.sampled_from([16, 64]))
@hypothesis.settings(deadline=None)
def test_tensors_that_are_in_use_together_share_no_byte(algorithm, lifetimes, alignment) -> None:
    offsets, total = algorithm(lifetimes, alignment)
    assert len(offsets) == len(lifetimes)
    assert total >= lower_bound(lifetimes, alignment)
    for i, (offset, lifetime) in enumerate(zip(offsets, lifetimes, strict=True)):
        assert offset % alignment == 0
        assert offset + lifetime.nbytes <= max(total, offset)
        for other_offset, other in zip(offsets[:i], lifetimes[:i], strict=True):
            if lifetime.overlaps(other) and lifetime.nbytes and other.nbytes:
                assert offset + lifetime.nbytes <= other_offset or other_offset + other.nbytes <= offset


@hypothesis.given(lifetimes=_LIFETIMES)
@hypothesis.settings(deadline=None)
def test_more_effort_never_needs_more_memory(lifetimes: list[Lifetime]) -> None:
    assert search(lifetimes, 16)[1] <= greedy(lifetimes, 16)[1] <= naive(lifetimes, 16)[1]


@hypothesis.given(lifetimes=_LIFETIMES)
@hypothesis.settings(deadline=None)
def test_neighbours_are_the_tensors_in_use_together(lifetimes: list[Lifetime]) -> None:
    occupied = [i for i, lifetime in enumerate(lifetimes) if lifetime.nbytes]
    for i, found in enumerate(neighbours(lifetimes)):
        others = [j for j in occupied if j != i and lifetimes[i].overlaps(lifetimes[j])]
        assert sorted(found) == (others if i in occupied else [])


@hypothesis.given(lifetimes=_LIFETIMES)
def test_the_peak_is_the_largest_sum_of_sizes_in_use(lifetimes: list[Lifetime]) -> None:
    def live(position: int) -> int:
        return sum(-(-x.nbytes // 16) * 16 for x in lifetimes if x.first <= position <= x.last)

    largest, where = peak(lifetimes, 16)
    assert largest == live(where) == max(map(live, range(50)))


def test_the_search_finds_what_greedy_misses() -> None:
    # The second largest lies on the largest, and the two beside it fit neither below nor under the bound.
    lifetimes = [
        Lifetime(80, 3, 6),
        Lifetime(32, 4, 5),
        Lifetime(64, 6, 7),
        Lifetime(48, 7, 9),
        Lifetime(48, 7, 9),
    ]
    bound = lower_bound(lifetimes, 16)
    assert greedy(lifetimes, 16)[1] > bound
    assert search(lifetimes, 16)[1] == bound


def test_the_search_gives_the_same_plan_every_time() -> None:
    chance = random_numbers.Random(3)
    lifetimes = [
        Lifetime(chance.choice([16, 48, 80, 112, 208]), first, first + chance.randrange(1, 12))
        for first in (chance.randrange(60) for _ in range(150))
    ]
    assert search(lifetimes, 16) == search(list(lifetimes), 16)


def test_planning_effort_grows_with_the_number_of_tensors_and_not_its_square() -> None:
    def looks(count: int) -> int:
        return sum(map(len, neighbours([Lifetime(64, i, i + 2) for i in range(count)])))

    assert looks(4000) < 2.1 * looks(2000)


def test_greedy_reuses_and_fills_gaps() -> None:
    lifetimes = [
        Lifetime(64, 0, 1),
        Lifetime(64, 1, 2),
        Lifetime(64, 2, 3),
        Lifetime(32, 3, 4),
        Lifetime(32, 3, 4),
    ]
    offsets, total = greedy(lifetimes, 16)
    assert total == 128
    assert offsets[0] == offsets[2] != offsets[1]
    assert sorted(offsets[3:]) == [offsets[1], offsets[1] + 32]


def _planned(function, *args, config=PORTABLE):
    edge = {"forward": edge_of(function, *args).exported_program()}
    program = functional_programs(edge, lowering_of(config))["forward"]
    return plan_programs({"forward": program}, lowering_of(config))["forward"]


def _spec(program, target) -> TensorSpec:
    return next(node for node in program.graph.nodes if node.target is target).meta["spec"]


def test_a_chain_of_operators_lives_in_two_places() -> None:
    program, sizes = _planned(lambda x: x.sin().cos().exp().log(), random(4, 4))
    assert sizes == [0, 128]
    ops = torch.ops.aten
    offsets = [_spec(program, op).memory_offset for op in (ops.sin.out, ops.cos.out, ops.exp.out)]
    assert offsets[0] == offsets[2] != offsets[1]


def test_a_view_keeps_its_base_alive() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        flat = x.sin().view(16)
        other = x.cos()
        return flat.exp() + other.view(16)

    program, _ = _planned(function, random(4, 4))
    sin, cos = _spec(program, torch.ops.aten.sin.out), _spec(program, torch.ops.aten.cos.out)
    assert sin.memory_offset != cos.memory_offset
    lifetimes = spec_lifetimes(program.graph, frozenset())
    names = [node.name for node in program.graph.nodes]
    exp = next(node.name for node in program.graph.nodes if node.target is torch.ops.aten.exp.out)
    assert lifetimes[sin][1] == names.index(exp)


def test_inputs_live_from_the_start_and_outputs_to_the_end() -> None:
    program, _ = _planned(lambda x, y: (x + y, y.cos()), random(2), random(2))
    lifetimes = spec_lifetimes(program.graph, frozenset())
    nodes = list(program.graph.nodes)
    for node in nodes:
        if node.op == "placeholder":
            assert lifetimes[node.meta["spec"]][0] == 0
    for node in nodes[-1].all_input_nodes:
        assert lifetimes[node.meta["spec"]][1] == len(nodes)


def test_a_buffer_that_is_updated_shares_its_place_with_nothing() -> None:
    edge = edge_program_of("accumulator").exported_program()
    lowering = lowering_of(PORTABLE)
    functional = functional_programs({"forward": edge}, lowering)
    program, _ = plan_programs(functional, lowering)["forward"]
    state = next(node for node in program.graph.nodes if node.name == "b_total").meta["spec"]
    for node in program.graph.nodes:
        spec = node.meta.get("spec")
        if isinstance(spec, TensorSpec) and spec.root is not state and spec.root.memory_id is not None:
            assert spec.root.memory_offset >= state.memory_offset + state.nbytes() or (
                spec.root.memory_offset + spec.root.nbytes() <= state.memory_offset
            )


def test_inputs_and_outputs_can_be_left_to_the_caller() -> None:
    config = ExecutorchBackendConfig(
        kernels="executorch-portable",
        memory_planning_pass=MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False),
    )
    program, sizes = _planned(lambda x: (x + 1).sin(), random(4), config=config)
    assert sizes == [0, 16]
    assert _spec(program, torch.ops.aten.sin.out).memory_id is None
    assert (
        next(node for node in program.graph.nodes if node.name.startswith("args")).meta["spec"].memory_id
        is None
    )


def test_an_algorithm_of_ones_own_is_used() -> None:
    config = ExecutorchBackendConfig(
        kernels="executorch-portable", memory_planning_pass=MemoryPlanningPass(naive, alignment=64)
    )
    _, sizes = _planned(lambda x: x.sin().cos(), random(2), config=config)
    assert sizes == [0, 192]


def _wrong_count(lifetimes, alignment):
    return [0], 0


def _off_alignment(lifetimes, alignment):
    return [8 * i for i, _ in enumerate(lifetimes)], 10_000


def _outside(lifetimes, alignment):
    return naive(lifetimes, alignment)[0], 16


def _on_one_place(lifetimes, alignment):
    return [0] * len(lifetimes), 10_000


@pytest.mark.parametrize(
    ("algorithm", "says"),
    [
        (_wrong_count, "_wrong_count returned 1 offsets for 3 tensors"),
        (_off_alignment, "offset 8, which is no multiple of 16"),
        (_outside, "of a memory of 16 bytes"),
        (_on_one_place, "on the same bytes while both are in use"),
    ],
)
def test_a_plan_that_is_none_is_refused(algorithm, says) -> None:
    config = ExecutorchBackendConfig(memory_planning_pass=MemoryPlanningPass(algorithm))
    with pytest.raises(ExportError, match=says):
        _planned(lambda x: x.sin().cos(), random(2), config=config)


@hypothesis.given(lifetimes=_LIFETIMES, data=st.data())
def test_the_check_of_plans_finds_every_clash(lifetimes, data) -> None:
    offsets = [16 * data.draw(st.integers(0, 400)) for _ in lifetimes]
    clashes = any(
        a.overlaps(b) and a.nbytes and b.nbytes and x < y + b.nbytes and y < x + a.nbytes
        for i, (a, x) in enumerate(zip(lifetimes, offsets, strict=True))
        for b, y in list(zip(lifetimes, offsets, strict=True))[:i]
    )
    if clashes:
        with pytest.raises(ExportError, match="on the same bytes"):
            require_valid_plan(naive, lifetimes, 16, offsets, 20_000)
    else:
        require_valid_plan(naive, lifetimes, 16, offsets, 20_000)


def _like_executorch(alignment, specs, graph_module, graph_signature, extra_padding=0):
    raise AssertionError


def test_an_algorithm_of_another_shape_is_refused_early() -> None:
    with pytest.raises(
        ExportError, match=r"_like_executorch\(.*cannot be called with \(lifetimes, alignment"
    ):
        MemoryPlanningPass(_like_executorch)
    with pytest.raises(ExportError, match="expected a function of"):
        MemoryPlanningPass("greedy")
    with pytest.raises(ExportError, match="list of algorithms is empty"):
        MemoryPlanningAlgorithmSuite([])
    with pytest.raises(ExportError, match="algo_list"):
        MemoryPlanningAlgorithmSuite([greedy, _like_executorch])


def test_the_suite_takes_the_smaller_plan_and_of_equal_ones_the_first() -> None:
    lifetimes = [Lifetime(64, 0, 1), Lifetime(64, 2, 3)]
    assert MemoryPlanningAlgorithmSuite([naive, greedy])(lifetimes, 16) == ([0, 0], 64)
    assert MemoryPlanningAlgorithmSuite()(lifetimes, 16) == ([0, 0], 64)
    apart = [Lifetime(64, 0, 1), Lifetime(64, 1, 3)]
    reversed_naive = lambda lifetimes, alignment: ([64, 0], 128)  # noqa: E731
    assert MemoryPlanningAlgorithmSuite([reversed_naive, naive])(apart, 16) == ([64, 0], 128)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"alignment": 24}, "expected a power of two, at least 16"),
        ({"alignment": 8}, "expected a power of two, at least 16"),
        ({"alloc_mutable_buffers": False, "share_mutable_buffers": True}, "have a place in planned memory"),
    ],
)
def test_settings_that_mean_nothing_here_are_refused(options, says) -> None:
    with pytest.raises(ExportError, match=says):
        MemoryPlanningPass(**options)
