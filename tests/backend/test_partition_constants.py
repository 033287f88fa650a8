"""Flow 3: who owns a constant or a buffer, the delegate or the outer program."""

from __future__ import annotations

import pytest
import torch
from torch.export.graph_signature import InputKind, OutputKind

from pteron.exir.backend.backend_api import to_backend
from pteron.exir.backend.partitioner import DelegationSpec
from tests.backend.lowering_cases import (
    Counter,
    Function,
    RecordingBackend,
    TagBy,
    delegate_calls,
    edge,
    operators,
    same,
)


class Shared(torch.nn.Module):
    """One weight that two products read."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(2, 2))

    def forward(self, x):
        return torch.sin(torch.mm(x, self.weight)), torch.cos(torch.mm(x, self.weight))


def test_constant_of_the_delegate_leaves_the_outer_signature() -> None:
    program = edge(torch.nn.Linear(2, 3), torch.ones(1, 2))
    lowered = to_backend(program, DelegationSpec("RecordingBackend", []))
    assert lowered.graph_signature.parameters == ()
    assert lowered.state_dict == {}
    assert set(RecordingBackend.programs[0].state_dict) == {"weight", "bias"}
    assert set(program.state_dict) == {"weight", "bias"}
    same(program, lowered, torch.randn(1, 2))


def _tag_each_mm(node):
    if node.name == "aten_mm_default" or node.name == "p_weight":
        return "a"
    return "b" if node.name == "aten_mm_default_1" else None


def test_constant_shared_by_two_partitions_is_copied() -> None:
    program = edge(Shared(), torch.ones(2, 2))
    lowered = to_backend(program, TagBy(_tag_each_mm))
    assert len(delegate_calls(lowered)) == 2
    assert all(set(p.state_dict) == {"weight"} for p in RecordingBackend.programs)
    assert [len(p.graph_signature.user_inputs) for p in RecordingBackend.programs] == [1, 1]
    assert lowered.state_dict == {}
    same(program, lowered, torch.randn(2, 2))


def test_constant_shared_by_many_partitions_is_copied_for_each() -> None:
    def three_sums(x: torch.Tensor) -> torch.Tensor:
        return x + weight + weight + weight

    weight = torch.randn(2)
    program = edge(Function(three_sums), torch.ones(2))
    adds = [node.name for node in program.graph.nodes if "add" in node.name]
    constant = next(node.name for node in program.graph.nodes if node.op == "placeholder")
    tags = {constant: adds[0], **{name: name for name in adds}}
    lowered = to_backend(program, TagBy(lambda n: tags.get(n.name)))
    assert len(delegate_calls(lowered)) == 3
    assert [len(p.constants) for p in RecordingBackend.programs] == [1, 1, 1]
    same(program, lowered, torch.randn(2))


def test_constant_read_outside_too_is_copied_and_stays_outside() -> None:
    program = edge(Shared(), torch.ones(2, 2))
    lowered = to_backend(program, TagBy(lambda n: "a" if n.name in ("aten_mm_default", "p_weight") else None))
    assert len(delegate_calls(lowered)) == 1
    assert set(lowered.state_dict) == {"weight"}
    assert set(RecordingBackend.programs[0].state_dict) == {"weight"}
    same(program, lowered, torch.randn(2, 2))


def test_constant_returned_by_the_program_is_copied() -> None:
    class Returns(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(2))

        def forward(self, x):
            return x + self.weight, self.weight

    program = edge(Returns(), torch.ones(2))
    lowered = to_backend(program, TagBy(operators("add", constants=True)))
    assert set(lowered.state_dict) == {"weight"}
    same(program, lowered, torch.randn(2))


def test_shared_constant_marked_no_copy_is_refused() -> None:
    def choose(node):
        tag = _tag_each_mm(node)
        if node.name == "p_weight":
            node.meta["no_copy"] = True
        return tag

    with pytest.raises(
        RuntimeError, match=r"constant data node \(p_weight\) is tagged with \(a\) but has user"
    ):
        to_backend(edge(Shared(), torch.ones(2, 2)), TagBy(choose))


def test_constant_that_only_others_read_goes_to_them() -> None:
    def choose(node):
        return "a" if node.name in ("p_weight", "aten_sin_default") else None

    program = edge(Shared(), torch.ones(2, 2))
    lowered = to_backend(program, TagBy(choose))
    assert RecordingBackend.programs[0].state_dict == {}
    assert set(lowered.state_dict) == {"weight"}
    same(program, lowered, torch.randn(2, 2))


def test_mutated_buffer_is_owned_by_the_delegate_that_updates_it() -> None:
    program = edge(Counter(), torch.ones(2))
    lowered = to_backend(program, TagBy(operators("add", "sin", constants=True)))
    inner = RecordingBackend.programs[0]
    assert inner.graph_signature.buffers_to_mutate
    assert [spec.kind for spec in lowered.graph_signature.output_specs] == [OutputKind.USER_OUTPUT]
    assert lowered.state_dict == {}
    same(program, lowered, torch.ones(2), calls=3)


def test_mutated_buffer_stays_outside_when_its_update_is_outside() -> None:
    def choose(node):
        return "t" if node.name in ("b_count", "aten_add_tensor_1", "aten_sin_default") else None

    program = edge(Counter(), torch.ones(2))
    lowered = to_backend(program, TagBy(choose))
    assert set(lowered.state_dict) == {"count"}
    assert not RecordingBackend.programs[0].graph_signature.buffers_to_mutate
    same(program, lowered, torch.ones(2), calls=3)


def test_mutated_buffer_stays_outside_when_its_new_value_is_used_outside() -> None:
    program = edge(Counter(seen=True), torch.ones(2))
    lowered = to_backend(program, TagBy(operators("add", constants=True)))
    kinds = [spec.kind for spec in lowered.graph_signature.output_specs]
    assert kinds.count(OutputKind.BUFFER_MUTATION) == 1
    assert set(lowered.state_dict) == {"count"}
    same(program, lowered, torch.ones(2), calls=3)


def test_untagged_mutated_buffer_crosses_the_border() -> None:
    program = edge(Counter(), torch.ones(2))
    lowered = to_backend(program, TagBy(operators("add", "sin")))
    assert lowered.graph_signature.input_specs[0].kind is InputKind.BUFFER
    same(program, lowered, torch.ones(2), calls=3)
