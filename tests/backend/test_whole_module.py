"""Flow 1: lower a whole module."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest
import torch

from pteron.backends.demo import BackendWithCompilerDemo
from pteron.errors import ExportError
from pteron.exir.backend.backend_api import to_backend
from pteron.exir.backend.backend_details import BackendDetails, PreprocessError, PreprocessResult
from pteron.exir.backend.compile_spec import CompileSpec
from pteron.exir.backend.lowered_backend_module import LoweredBackendModule
from tests.backend.lowering_cases import Counter, Function, RecordingBackend, edge, names


def test_unknown_backend_is_refused_and_known_ones_are_listed() -> None:
    with pytest.raises(NotImplementedError, match=r"Backend Nobody was not found\.") as caught:
        to_backend("Nobody", edge(Function(torch.sin), torch.ones(1)), [])
    assert "RecordingBackend" in str(caught.value)


def test_sin_gives_the_blob_that_peers_know() -> None:
    lowered = to_backend("BackendWithCompilerDemo", edge(Function(torch.sin), torch.ones(1)), [])
    assert lowered.processed_bytes == (
        b"1version:0#op:demo::aten.sin.default, numel:1, dtype:torch.float32<debug_handle>1#"
    )
    assert lowered.meta == {"debug_handle_map": {1: (1,)}, "_delegate_info_meta": "test"}


def test_result_carries_what_it_was_made_from() -> None:
    program = edge(Function(torch.sin), torch.ones(2))
    specs = [CompileSpec("max_value", bytes([4]))]
    lowered = to_backend("RecordingBackend", program, specs)
    assert isinstance(lowered, LoweredBackendModule)
    assert isinstance(lowered, torch.nn.Module)
    assert lowered.backend_id == "RecordingBackend"
    assert lowered.processed_bytes == b"blob 3"
    assert lowered.compile_specs == specs
    assert lowered.original_module is program
    assert lowered.named_data_store_output is None
    assert lowered.meta == {"debug_handle_map": None}


def test_lowered_module_computes_the_original_result_in_eager_mode() -> None:
    lowered = to_backend("BackendWithCompilerDemo", edge(Function(torch.sin), torch.ones(3)), [])
    x = torch.randn(3)
    # The backend itself would give x - x**3/6.
    torch.testing.assert_close(lowered(x), torch.sin(x))


def test_preprocess_gets_a_deep_copy() -> None:
    class Vandal(BackendDetails):
        @staticmethod
        def preprocess(edge_program, compile_specs):
            with torch.no_grad():
                for tensor in edge_program.state_dict.values():
                    tensor.fill_(0)
            for node in list(edge_program.graph.nodes):
                node.meta.clear()
            edge_program.graph.output_node().args = ((),)
            return PreprocessResult(b"")

    program = edge(torch.nn.Linear(2, 2), torch.ones(1, 2))
    before = (copy.deepcopy(program.state_dict), str(program.graph))
    to_backend("Vandal", program, [])
    assert str(program.graph) == before[1]
    assert all(torch.equal(program.state_dict[name], tensor) for name, tensor in before[0].items())
    assert all("val" in node.meta for node in program.graph.nodes if node.op != "output")


def test_copy_keeps_names_that_are_python_builtins() -> None:

    class Named(torch.nn.Module):
        def forward(self, input):  # noqa: A002
            return torch.sin(input)

    to_backend("RecordingBackend", edge(Named(), torch.ones(1)), [])
    program = RecordingBackend.programs[-1]
    assert [n.name for n in program.graph.nodes if n.op == "placeholder"] == ["input"]
    assert program.graph_signature.user_inputs == ("input",)


class SinOfCos(torch.nn.Module):
    def forward(self, x):
        y = torch.cos(x)
        return torch.sin(y)


def test_other_failures_become_runtime_errors_with_their_cause_and_place() -> None:
    class Clumsy(BackendDetails):
        @staticmethod
        def preprocess(edge_program, compile_specs):
            raise KeyError("conv")

    class Walks(BackendDetails):
        @staticmethod
        def preprocess(edge_program, compile_specs):
            for node in edge_program.graph.nodes:
                if node.op == "call_function":
                    {"aten.cos.default": 1}[node.target.__name__]

    with pytest.raises(RuntimeError, match=r"Walks\.preprocess failed at node .*KeyError") as caught:
        to_backend("Walks", edge(SinOfCos(), torch.ones(1)), [])
    assert isinstance(caught.value, PreprocessError)
    assert isinstance(caught.value, ExportError)
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.operator == "aten.sin.default"
    line = SinOfCos.forward.__code__.co_firstlineno + 2
    assert f"test_whole_module.py:{line}" in str(caught.value)
    with pytest.raises(PreprocessError, match=r"Clumsy\.preprocess failed: KeyError: 'conv'"):
        to_backend("Clumsy", edge(SinOfCos(), torch.ones(1)), [])


def test_runtime_errors_of_a_backend_are_left_as_they_are_with_a_note() -> None:
    class Strict(BackendDetails):
        @staticmethod
        def preprocess(edge_program, compile_specs):
            for node in edge_program.graph.nodes:
                if "sin" in node.name:
                    raise NotImplementedError("no")

    with pytest.raises(NotImplementedError) as caught:
        to_backend("Strict", edge(SinOfCos(), torch.ones(1)), [])
    assert str(caught.value) == "no"
    [note] = caught.value.__notes__
    assert note.startswith("raised by Strict.preprocess at node %aten_sin_default")
    assert "test_whole_module.py:" in note


def test_something_else_than_a_result_is_refused() -> None:
    class Forgetful(BackendDetails):
        @staticmethod
        def preprocess(edge_program, compile_specs):
            return None

    with pytest.raises(PreprocessError, match="expected a PreprocessResult"):
        to_backend("Forgetful", edge(Function(torch.sin), torch.ones(1)), [])


def test_unsupported_operator_is_refused_with_its_source_line() -> None:
    class Cosine(torch.nn.Module):
        def forward(self, x):
            return torch.cos(x)

    with pytest.raises(
        RuntimeError,
        match=r"call_function aten\.cos\.default is not supported in backend BackendWithCompilerDemo",
    ) as caught:
        to_backend("BackendWithCompilerDemo", edge(Cosine(), torch.ones(1)), [])
    line = Cosine.forward.__code__.co_firstlineno + 1
    assert f"test_whole_module.py:{line}" in str(caught.value)


def test_tan_is_accepted_while_lowering() -> None:
    lowered = to_backend("BackendWithCompilerDemo", edge(Function(torch.tan), torch.ones(1)), [])
    assert b"op:demo::aten.tan.default" in lowered.processed_bytes


def test_same_bytes_for_programs_that_differ_in_wiring_only() -> None:
    inputs = torch.ones(2), torch.ones(2)
    left = to_backend("BackendWithCompilerDemo", edge(Function(lambda x, y: (x + y) + x), *inputs), [])
    right = to_backend("BackendWithCompilerDemo", edge(Function(lambda x, y: (x + y) + y), *inputs), [])
    assert left.processed_bytes == right.processed_bytes
    assert left.named_data_store_output.buffers != right.named_data_store_output.buffers


def test_class_derived_from_a_backend_is_refused() -> None:
    with pytest.raises(TypeError, match="doesn't support nested backend, 'BackendWithCompilerDemo'"):
        type("Derived", (BackendWithCompilerDemo,), {})


def test_newest_class_of_a_name_is_used() -> None:
    def define(blob: bytes) -> type[BackendDetails]:
        class Twice(BackendDetails):
            @staticmethod
            def preprocess(edge_program, compile_specs):
                return PreprocessResult(blob)

        return Twice

    classes = [define(b"old"), define(b"new")]
    program = edge(Function(torch.sin), torch.ones(1))
    assert to_backend("Twice", program, []).processed_bytes == b"new"
    assert len(classes) == 2


def test_compile_specs_are_checked() -> None:
    with pytest.raises(TypeError, match="expected CompileSpec"):
        to_backend("RecordingBackend", edge(Function(torch.sin), torch.ones(1)), [("key", 4)])


def test_arguments_and_results_keep_their_structure() -> None:

    class Nested(torch.nn.Module):
        def forward(self, pair, *, scale):
            return {"sum": pair[0] + pair[1]["b"], "list": [pair[0] * scale]}

    x = torch.randn(2)
    arguments, keywords = ((x, {"b": x + 1}),), {"scale": x + 2}
    program = edge(Nested(), *arguments, kwargs=keywords)
    lowered = to_backend("RecordingBackend", program, [])
    result, expected = lowered(*arguments, **keywords), Nested()(*arguments, **keywords)
    assert result.keys() == expected.keys()
    torch.testing.assert_close(result, expected)
    with pytest.raises(TypeError, match="expected arguments of structure"):
        lowered(x)


def test_program_and_program_call_both_give_the_complete_program() -> None:
    lowered = to_backend("BackendWithCompilerDemo", edge(Function(torch.sin), torch.ones(1)), [])
    for program in (lowered.program, lowered.program()):
        plan = program.execution_plan[0]
        assert [delegate.id for delegate in plan.delegates] == ["BackendWithCompilerDemo"]
        assert len(plan.inputs) == len(plan.outputs) == 1
        assert program.backend_delegate_data[0].data == lowered.processed_bytes


def test_complete_program_of_a_module_with_a_plain_tensor_attribute() -> None:
    class Plain(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.offset = torch.ones(2)

        def forward(self, x):
            return x + self.offset

    lowered = to_backend("BackendWithCompilerDemo", edge(Plain(), torch.ones(2)), [])
    plan = lowered.program().execution_plan[0]
    assert len(plan.inputs) == 1
    assert [type(i.instr_args).__name__ for i in plan.chains[0].instructions] == ["DelegateCall"]


def test_complete_program_of_a_module_that_keeps_state_hides_the_state() -> None:
    lowered = to_backend("RecordingBackend", edge(Counter(), torch.ones(2)), [])
    plan = lowered.program().execution_plan[0]
    assert (len(plan.inputs), len(plan.outputs)) == (1, 1)


def test_state_is_refused_by_the_demo_backend() -> None:
    with pytest.raises(RuntimeError, match="updating count is not supported"):
        to_backend("BackendWithCompilerDemo", edge(Counter(), torch.ones(2)), [])


def test_copies_share_weights_and_blob() -> None:
    lowered = to_backend("RecordingBackend", edge(torch.nn.Linear(2, 2), torch.ones(1, 2)), [])
    duplicate = copy.deepcopy(lowered)
    assert duplicate.processed_bytes is lowered.processed_bytes
    assert duplicate.original_module.graph is not lowered.original_module.graph
    for name, tensor in lowered.original_module.state_dict.items():
        assert duplicate.original_module.state_dict[name] is tensor
    assert names(duplicate.original_module) == names(lowered.original_module)


def test_copies_have_a_state_of_their_own() -> None:
    lowered = to_backend("RecordingBackend", edge(Counter(seen=True), torch.ones(2)), [])
    duplicate = copy.deepcopy(lowered)
    x = torch.zeros(2)
    first = duplicate(x)
    torch.testing.assert_close(first[1], torch.sin(torch.ones(2)))
    torch.testing.assert_close(duplicate(x)[1], torch.sin(torch.full((2,), 2.0)))
    torch.testing.assert_close(lowered(x), first)


def test_importing_this_module_alone_is_enough_to_write_a_lowered_module() -> None:
    code = """
import sys
import pteron.exir.backend.lowered_backend_module as lowered_backend_module
assert "pteron.exir.program" in sys.modules
assert lowered_backend_module._lowering.__module__ == "pteron.exir.program"
"""
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})
