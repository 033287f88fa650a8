"""Debug ids of a backend's steps, and the debug handles they stand for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pteron
from pteron.backends.demo import BackendWithDelegateMappingDemo, DemoBackend, register_demo_backends
from pteron.exir.backend.backend_api import to_backend
from pteron.exir.backend.delegate_mapping_builder import DelegateMappingBuilder
from tests.backend.lowering_cases import Function, edge
from tests.support.programs import build, delegate_method


@pytest.fixture(scope="module")
def nodes():
    program = edge(Function(lambda x: torch.cos(torch.sin(x))), torch.ones(1))
    return {node.name: node for node in program.graph.nodes}


def test_fused_and_split_steps_of_the_demo() -> None:
    model, inputs = BackendWithDelegateMappingDemo.get_test_model_and_inputs()
    assert [tuple(value.shape) for value in inputs] == [(4, 3, 64, 64)]
    lowered = to_backend("BackendWithDelegateMappingDemo", edge(model, *inputs), [])
    assert lowered.processed_bytes == (
        b"5#conv_relu_op,0,conv_relu_op,1,sin_decomp_from_tan,2,cos_decomp_from_tan,3,div_decomp_from_tan,4,"
    )
    assert lowered.meta["debug_handle_map"] == {0: (1, 2), 1: (3, 4), 2: (5,), 3: (5,), 4: (5,)}


@pytest.mark.parametrize("language", ["python", "rust"])
def test_events_of_the_demo_carry_the_ids_of_its_map(language: str) -> None:
    class Tracer:
        """Keeps what delegates report."""

        def __init__(self) -> None:
            self.events: list[tuple[Any, ...]] = []

        def delegate_event(self, *event: Any) -> None:
            self.events.append(event)

    model, inputs = BackendWithDelegateMappingDemo.get_test_model_and_inputs()
    lowered = to_backend("BackendWithDelegateMappingDemo", edge(model, *inputs), [])
    runtime = pteron.Runtime()
    register_demo_backends(runtime, language=language)
    method = pteron.load(lowered.buffer(), runtime=runtime).load_method()
    tracer = Tracer()
    (result,) = method.execute(list(inputs), tracer=tracer)
    assert not np.asarray(result).any()
    found = [(identifier, bytes(metadata).decode()) for _, _, identifier, _, _, metadata in tracer.events]
    split = [(2, "sin_decomp_from_tan"), (3, "cos_decomp_from_tan"), (4, "div_decomp_from_tan")]
    assert found == [(0, "conv_relu_op"), (1, "conv_relu_op"), *split]
    assert {identifier for identifier, _ in found} == lowered.meta["debug_handle_map"].keys()
    assert all(start <= end for _, _, _, start, end, _ in tracer.events)
    method.execute(list(inputs))


@pytest.mark.parametrize("language", ["python", "rust"])
@pytest.mark.parametrize(
    "blob", [b"", b"#", b"1#", b"x#a,1,", b"2#a,1,", b"1#a,b,", b"1#a,1,b", b"1#\xff,1,"]
)
def test_damaged_lists_of_steps_are_refused(blob: bytes, language: str) -> None:
    runtime = pteron.Runtime()
    register_demo_backends(runtime, language=language)
    program = pteron.load(
        build(delegate_method("BackendWithDelegateMappingDemo", blob=blob)), runtime=runtime
    )
    with pytest.raises(pteron.DelegateError, match="the list of steps cannot be read"):
        program.load_method()


def test_a_program_with_two_outputs_is_lowered_and_no_run_half_takes_it() -> None:
    program = edge(Function(lambda x: (torch.tan(x), torch.tan(torch.tan(x)))), torch.ones(1))
    lowered = to_backend("BackendWithDelegateMappingDemo", program, [])
    assert lowered.processed_bytes.startswith(b"9#sin_decomp_from_tan,0,")
    runtime = pteron.Runtime()
    register_demo_backends(runtime)
    with pytest.raises(
        pteron.ProgramError, match=r"BackendWithDelegateMappingDemo.*another number of outputs"
    ):
        pteron.load(lowered.buffer(), runtime=runtime).load_method()


def test_the_model_of_the_demo_names_its_modules_as_the_peer_does() -> None:
    model, _ = BackendWithDelegateMappingDemo.get_test_model_and_inputs()
    names = [name for name, _ in model.named_modules() if name]
    assert names == ["conv_layer", *(f"conv_layer.{name}" for name in ("conv1", "relu1", "conv2", "relu2"))]


def test_operators_without_a_step_are_lowered_too_as_in_the_peer() -> None:
    program = edge(Function(lambda x: torch.relu(torch.sin(torch.tan(x)))), torch.ones(1))
    lowered = to_backend("BackendWithDelegateMappingDemo", program, [])
    assert lowered.processed_bytes == (
        b"3#sin_decomp_from_tan,0,cos_decomp_from_tan,1,div_decomp_from_tan,2,"
    )
    assert lowered.meta["debug_handle_map"] == {0: (1,), 1: (1,), 2: (1,)}


def test_nodes_of_one_source_operator_share_a_handle() -> None:
    program = edge(torch.nn.Linear(2, 3), torch.ones(4, 5, 2))
    handles = {node.meta["debug_handle"] for node in program.graph.nodes if node.op == "call_function"}
    assert handles == {1}
    assert all(
        not n.meta.get("debug_handle") for n in program.graph.nodes if n.op in ("placeholder", "output")
    )


def test_generated_ids_count_from_zero(nodes) -> None:
    builder = DelegateMappingBuilder(generated_identifiers=True)
    sin, cos = nodes["aten_sin_default"], nodes["aten_cos_default"]
    assert builder.insert_delegate_mapping_entry(nodes=[cos, sin]) == 0
    assert builder.insert_delegate_mapping_entry(nodes=sin) == 1
    assert builder.insert_delegate_mapping_entry(handles=[7, None, 3]) == 2
    assert builder.get_delegate_mapping() == {0: (1, 2), 1: (1,), 2: (3, 7)}


@pytest.mark.parametrize("identifier", [5, "step"])
def test_own_ids_are_int_or_str(identifier) -> None:
    builder = DelegateMappingBuilder()
    assert builder.insert_delegate_mapping_entry(handles=4, identifier=identifier) == identifier
    assert builder.get_delegate_mapping() == {identifier: (4,)}


def test_duplicate_id_is_refused() -> None:
    builder = DelegateMappingBuilder()
    builder.insert_delegate_mapping_entry(handles=1, identifier="a")
    with pytest.raises(Exception, match="Duplicate delegate debug identifiers are not allowed"):
        builder.insert_delegate_mapping_entry(handles=2, identifier="a")


@pytest.mark.parametrize("both", [True, False])
def test_both_or_neither_of_nodes_and_handles_are_refused(both, nodes) -> None:
    given = {"nodes": nodes["aten_sin_default"], "handles": 1} if both else {}
    with pytest.raises(Exception, match="Only one of nodes or handles must be provided"):
        DelegateMappingBuilder(True).insert_delegate_mapping_entry(**given)


def test_own_id_is_refused_when_ids_are_generated() -> None:
    with pytest.raises(Exception, match="can't manually add identifiers"):
        DelegateMappingBuilder(True).insert_delegate_mapping_entry(handles=1, identifier=1)


def test_missing_id_is_refused_when_ids_are_not_generated() -> None:
    with pytest.raises(Exception, match="No identifier provided"):
        DelegateMappingBuilder().insert_delegate_mapping_entry(handles=1)


def test_entry_without_any_handle_is_refused(nodes) -> None:
    for given in (
        {"nodes": nodes["args_0"] if "args_0" in nodes else next(iter(nodes.values()))},
        {"handles": [None]},
    ):
        with pytest.raises(Exception, match="No valid debug handles found"):
            DelegateMappingBuilder(True).insert_delegate_mapping_entry(**given)


def test_the_smallest_demo_takes_lowered_modules_too() -> None:
    inner = to_backend(DemoBackend.__name__, edge(Function(lambda x: torch.sin(x) + 1), torch.ones(1)), [])
    assert inner.meta["debug_handle_map"] == {1: (1, 2)}
    outer = to_backend(DemoBackend.__name__, edge(Function(lambda x: inner(x) * 2), torch.ones(1)), [])
    assert set(outer.meta["debug_handle_map"]) == {1}
    shared = to_backend(DemoBackend.__name__, edge(torch.nn.Linear(2, 3), torch.ones(4, 5, 2)), [])
    assert set(shared.meta["debug_handle_map"][1]) == {1}
    assert len(shared.meta["debug_handle_map"][1]) > 1
