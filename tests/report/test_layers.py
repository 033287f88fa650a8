"""Nodes, edges and lifetimes of a program in both layers."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pteron
from pteron.devtools.description import TensorValue, describe, describe_plan
from pteron.devtools.lifetimes import Lifetime
from pteron.devtools.live_memory import covered_bytes, live_bytes
from pteron.devtools.profile import profile
from pteron.devtools.report.layers import Layer, file_layer, plan_layer
from pteron.devtools.sources import Sources
from pteron.devtools.step_profile import step_profiles

NAMES = ("encoder", "loop", "counter", "hostile")


def layers(data: bytes) -> tuple[Layer, Layer]:
    """The file's layer and the plan's."""
    program = pteron.load(data)
    sources = Sources(program, "forward")
    plan = describe_plan(program)
    file = describe(program).methods["forward"]
    return file_layer(file, sources), plan_layer(plan, step_profiles(plan, file, sources))


@pytest.mark.parametrize("name", NAMES)
def test_nodes_write_what_the_runtime_says(name: str, files: dict[str, bytes]) -> None:
    _, plan = layers(files[name])
    for node, step in zip(plan.nodes, plan.method.steps, strict=True):
        assert sum(tensor.nbytes for tensor in node.access.writes) == step.writes, node.name
        read = {tensor.index: tensor.nbytes for tensor in node.access.reads}
        assert sum(read.values()) <= max(step.reads, 0) or not step.reads


@pytest.mark.parametrize("name", NAMES)
def test_every_read_has_a_writer_before_it(name: str, files: dict[str, bytes]) -> None:
    for layer in layers(files[name]):
        for at, edges in enumerate(layer.flow.edges):
            planned = [tensor for tensor in layer.nodes[at].access.reads if tensor.arena is not None]
            assert len(edges) >= bool(planned), (at, layer.nodes[at])
            for edge in edges:
                writer = layer.flow.lifetimes[edge].writer
                assert writer is None or writer < at
                assert layer.flow.lifetimes[edge].first <= at <= layer.flow.lifetimes[edge].last
        assert all(writer is not None for _, writer in layer.flow.outputs)


def test_the_layers_of_an_encoder_connect_all(files: dict[str, bytes]) -> None:
    file, plan = layers(files["encoder"])
    assert len(plan.nodes) < len(file.nodes)
    covered = sorted(at for node in plan.nodes for at in node.instructions)
    # The rows of the patches are the bytes of their image: a view, for which no step stands.
    missing = [at for at in range(len(file.nodes)) if at not in covered]
    assert [file.nodes[at].name for at in missing] == ["aten::permute_copy.out"]
    assert sorted(covered + missing) == list(range(len(file.nodes)))
    for layer in (file, plan):
        # From the output back to the input.
        reached, left = set(), [layer.flow.outputs[0][1]]
        found_input = False
        while left:
            at = left.pop()
            if at is None or at in reached:
                continue
            reached.add(at)
            for edge in layer.flow.edges[at]:
                left.append(layer.flow.lifetimes[edge].writer)
                found_input |= layer.flow.lifetimes[edge].writer is None
        assert found_input
        assert len(reached) > 0.7 * len(layer.nodes)
    # The sum after attention is in a step of its own kernel: the residual is read, not written.
    sums = [at for at, node in enumerate(plan.nodes) if "+residual" in node.name]
    assert sums
    for at in sums:
        assert sum(tensor.stored is None for tensor in plan.nodes[at].access.reads) == 2


def test_what_a_round_leaves_lives_through_the_loop(files: dict[str, bytes]) -> None:
    for layer in layers(files["loop"]):
        jumps = [
            (node.access.jump, at) for at, node in enumerate(layer.nodes) if node.access.jump is not None
        ]
        start, end = next((to, at) for to, at in jumps if to <= at)
        carried = [
            one
            for one in layer.flow.lifetimes
            if one.writer is not None and one.first <= start and one.last >= end
        ]
        assert carried, [(one.first, one.last) for one in layer.flow.lifetimes]


def test_state_lives_from_the_first_step_to_the_last(files: dict[str, bytes]) -> None:
    file, _ = layers(files["counter"])
    state = [one for one in file.flow.lifetimes if one.tensor.is_state and one.writer is None]
    assert state
    assert state[0].first == 0
    assert any(len(node.access.writes) == 2 for node in file.nodes)
    (_, values), (_, places) = file.flow.outputs
    assert values == places


@pytest.mark.parametrize("name", NAMES)
def test_live_bytes_fit_the_arena(name: str, files: dict[str, bytes]) -> None:
    for layer in layers(files[name]):
        live = covered_bytes(layer.flow.lifetimes, len(layer.nodes))
        assert len(live) == len(layer.nodes)
        assert 0 < max(live) <= sum(layer.method.arenas)


@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.integers(0, 20), st.integers(0, 11), st.integers(0, 11)),
        max_size=20,
    )
)
def test_each_byte_counts_once(rectangles: list[tuple[int, int, int, int]]) -> None:
    lifetimes = []
    for offset, nbytes, a, b in rectangles:
        tensor = TensorValue(len(lifetimes), "uint8", (nbytes,), nbytes, False, False, 0, offset)
        lifetimes.append(Lifetime(tensor, None, min(a, b), max(a, b)))
    expected = [
        len(
            {
                byte
                for (offset, nbytes, a, b) in rectangles
                if min(a, b) <= at <= max(a, b)
                for byte in range(offset, offset + nbytes)
            }
        )
        for at in range(12)
    ]
    assert covered_bytes(lifetimes, 12) == expected


def test_lifetimes_of_the_plan_do_not_overlap_but_in_place(files: dict[str, bytes]) -> None:
    _, plan = layers(files["encoder"])
    planned = [one for one in plan.flow.lifetimes if one.tensor.arena is not None]
    for a, b in pairwise(sorted(planned, key=lambda one: one.tensor.offset or 0)):
        a_end, b_start = (a.tensor.offset or 0) + a.tensor.nbytes, b.tensor.offset or 0
        if b_start < a_end:
            # A step may write where it reads for the last time.
            assert a.last <= b.first or b.last <= a.first


def test_a_profile_follows_the_same_lifetimes(files: dict[str, bytes]) -> None:
    program = pteron.load(files["encoder"])
    plan = describe_plan(program)
    _, layer = layers(files["encoder"])
    assert live_bytes(plan) == covered_bytes(layer.flow.lifetimes, len(layer.nodes))
    found = profile(program, [np.ones((1, 3, 16, 16), np.float32)], runs=1, warmup=0)
    # What follows a fused sum reads it, not the summand that was there before.
    for at, node in enumerate(layer.nodes[:-1]):
        if "+residual" in node.name:
            assert any(source == at for source, _ in found.flows)
