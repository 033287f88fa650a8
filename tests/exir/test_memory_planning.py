"""Lifetimes and placement."""

from __future__ import annotations

import hypothesis
import pytest
import torch
from hypothesis import strategies as st

from exir.small_models import PORTABLE, edge_of, edge_program_of, random
from pteron.errors import ExportError
from pteron.exir import ExecutorchBackendConfig
from pteron.exir.edge.tensor_spec import TensorSpec
from pteron.exir.lower_program import _functional, _plan
from pteron.exir.memory.greedy import greedy
from pteron.exir.memory.lifetime import Lifetime
from pteron.exir.memory.memory_planning_pass import MemoryPlanningPass
from pteron.exir.memory.naive import naive
from pteron.exir.memory.spec_lifetimes import spec_lifetimes

_LIFETIMES = st.lists(
    st.builds(
        lambda nbytes, first, length: Lifetime(nbytes, first, first + length),
        st.integers(0, 5000),
        st.integers(0, 30),
        st.integers(0, 12),
    ),
    max_size=40,
)


@pytest.mark.parametrize("algorithm", [greedy, naive])
@hypothesis.given(lifetimes=_LIFETIMES, alignment=st.sampled_from([16, 64]))
@hypothesis.settings(deadline=None)
def test_tensors_that_are_alive_together_share_no_byte(algorithm, lifetimes, alignment) -> None:
    offsets, total = algorithm(lifetimes, alignment)
    assert len(offsets) == len(lifetimes)
    for i, (offset, lifetime) in enumerate(zip(offsets, lifetimes, strict=True)):
        assert offset % alignment == 0
        assert offset + lifetime.nbytes <= max(total, offset)
        for other_offset, other in zip(offsets[:i], lifetimes[:i], strict=True):
            if lifetime.overlaps(other) and lifetime.nbytes and other.nbytes:
                assert offset + lifetime.nbytes <= other_offset or other_offset + other.nbytes <= offset


@hypothesis.given(lifetimes=_LIFETIMES)
@hypothesis.settings(deadline=None)
def test_greedy_needs_no_more_than_naive(lifetimes: list[Lifetime]) -> None:
    assert greedy(lifetimes, 16)[1] <= naive(lifetimes, 16)[1]


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
    return _plan(_functional(edge_of(function, *args).exported_program(), config), "forward", config)


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
    program, _ = _plan(_functional(edge, PORTABLE), "forward", PORTABLE)
    state = next(node for node in program.graph.nodes if node.name == "b_total").meta["spec"]
    for node in program.graph.nodes:
        spec = node.meta.get("spec")
        if isinstance(spec, TensorSpec) and spec.root is not state and spec.root.memory_id is not None:
            assert spec.root.memory_offset >= state.memory_offset + state.nbytes or (
                spec.root.memory_offset + spec.root.nbytes <= state.memory_offset
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


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"alignment": 24}, "expected a power of two, at least 16"),
        ({"alignment": 8}, "expected a power of two, at least 16"),
        ({"share_mutable_buffers": True}, "share_mutable_buffers=True"),
        ({"alloc_mutable_buffers": False}, "alloc_mutable_buffers=False"),
    ],
)
def test_settings_that_mean_nothing_here_are_refused(options, says) -> None:
    with pytest.raises(ExportError, match=says):
        MemoryPlanningPass(**options)
