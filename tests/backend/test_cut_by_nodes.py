"""Partitions that code cuts out itself, step by step, and hands to a backend."""

from __future__ import annotations

import operator

import pytest
import torch
from torch.export.graph_signature import InputKind, OutputKind, OutputSpec, TensorArgument

from pteron.exir.backend.backend_api import lower_all_submodules_to_backend, remove_used_metadata
from pteron.exir.backend.cut_by_nodes import (
    arrange_graph_outputs,
    create_exported_program_from_submodule,
    create_submodule_from_nodes,
)
from pteron.exir.backend.program_copy import deep_copy
from tests.backend.lowering_cases import (
    Counter,
    Function,
    RecordingBackend,
    delegate_calls,
    edge,
    names,
    operators,
    same,
)

X = torch.tensor([0.5, 2.0])


def cut(program, chosen, tag="t"):
    """Cuts the chosen nodes out of `program`, in place, and returns the call with its notes."""
    members = [node for node in program.graph.nodes if chosen(node)]
    for node in members:
        node.meta["delegation_tag"] = tag
    # The signature names results, and follows them where they are replaced.
    with program.graph_module._set_replace_hook(program.graph_signature.get_replace_hook()):
        submodule, call = create_submodule_from_nodes(program.graph_module, members, tag)
    part, inputs, outputs = create_exported_program_from_submodule(submodule, program, tag, call, False)
    call.meta.update(
        compile_spec=[],
        submodule_program=part,
        is_submodule=False,
        submodule_output_node=part.graph.output_node(),
        toplevel_input_specs_to_delete=inputs,
        toplevel_output_specs_to_delete=outputs,
    )
    return call, part


def lower(program, call):
    lower_all_submodules_to_backend("RecordingBackend", {"forward": [call]}, {"forward": program})
    remove_used_metadata(program.graph)
    program.validate()


def test_operators_become_a_delegate_call() -> None:
    source = edge(Function(lambda x: torch.cos(torch.sin(x) + x) * 2), X)
    program = deep_copy(source)
    call, part = cut(program, operators("sin", "add"))
    assert names(part) == ["aten.sin.default", "aten.add.Tensor"]
    assert [user.target for user in call.users] == [operator.getitem]
    lower(program, call)
    assert len(delegate_calls(program)) == 1
    assert program.graph.find_nodes(op="call_module") == []
    same(source, program, X)


def test_constants_and_updates_go_with_the_operators() -> None:
    source = edge(Counter(), X)
    program = deep_copy(source)

    def chosen(node: torch.fx.Node) -> bool:
        return operators("add", "sin")(node) is not None or node.name == "b_count"

    call, part = cut(program, chosen)
    kinds = [spec.kind for spec in part.graph_signature.input_specs]
    assert kinds[0] is InputKind.BUFFER
    assert [spec.kind for spec in part.graph_signature.output_specs] == [
        OutputKind.BUFFER_MUTATION,
        OutputKind.USER_OUTPUT,
    ]
    lower(program, call)
    assert RecordingBackend.programs[0].state_dict.keys() == {"count"}
    assert program.state_dict == {}
    assert program.graph_signature.buffers_to_mutate == {}
    [delegate] = delegate_calls(program)
    assert [item.args[1] for item in delegate.users] == [0]
    assert len(delegate.meta["val"]) == 1
    same(source, program, X, calls=3)


def test_a_constant_goes_with_its_reader_and_others_stay() -> None:
    source = edge(torch.nn.Linear(2, 2), torch.ones(1, 2))
    program = deep_copy(source)
    call, part = cut(program, operators("permute", constants=True))
    assert part.state_dict.keys() == {"weight"}
    lower(program, call)
    assert program.state_dict.keys() == {"bias"}
    same(source, program, torch.ones(1, 2))


def test_an_update_that_is_also_a_result_is_refused() -> None:
    class Returned(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(x)
            return self.count + 0 * x

    program = edge(Returned(), X)
    spec = program.graph_signature.output_specs[0]
    program.graph_signature.output_specs[1].arg = TensorArgument(name=spec.arg.name)
    output = program.graph.output_node()
    output.args = ((output.args[0][0], output.args[0][0]),)
    with pytest.raises(RuntimeError, match="leave the buffer without a tag"):
        cut(program, lambda node: operators("add")(node) is not None or node.name == "b_count")


def test_updates_are_moved_before_results() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(torch.sin, (x,)), graph.call_function(torch.cos, (x,))))
    part = torch.fx.GraphModule(torch.nn.Module(), graph)
    caller = torch.fx.Graph()
    call = caller.call_module("part", (caller.placeholder("x"),))
    items = [caller.call_function(operator.getitem, (call, place)) for place in (0, 1)]
    specs = [
        OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(name="sin"), None),
        OutputSpec(OutputKind.BUFFER_MUTATION, TensorArgument(name="cos"), "b"),
    ]
    arrange_graph_outputs(part, specs, call)
    assert [node.name for node in part.graph.output_node().args[0]] == ["cos", "sin"]
    assert [spec.kind for spec in specs] == [OutputKind.BUFFER_MUTATION, OutputKind.USER_OUTPUT]
    assert [item.args[1] for item in items] == [1, 0]
    with pytest.raises(RuntimeError, match="Mismatch between graph outputs"):
        arrange_graph_outputs(part, specs[:1], call)
