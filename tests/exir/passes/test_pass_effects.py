"""What a pass does to constants, metadata and the signature of a program is seen in the file, or refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.export.graph_signature import OutputKind, OutputSpec, TensorArgument
from torch.fx.passes.infra.pass_base import PassResult
from torch.utils._sympy.value_ranges import ValueRanges

import pteron
from pteron.exir import ExecutorchBackendConfig, to_edge, to_edge_transform_and_lower
from pteron.exir.backend.backend_api import to_backend
from pteron.exir.backend.backend_details import BackendDetails, PreprocessResult
from pteron.exir.backend.partitioner import DELEGATION_TAG, DelegationSpec, Partitioner, PartitionResult
from pteron.exir.edge.exir_ops import exir_ops
from pteron.exir.executorch_program_manager import ExecutorchProgramManager
from pteron.exir.passes.exported_program_pass import ExportedProgramPassBase, ExportedProgramPassResult

ATEN = exir_ops.edge.aten
X = torch.tensor([1.0, 2.0])


class Model(torch.nn.Module):
    """sin(x * w) + b."""

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor([2.0, 3.0]))
        self.register_buffer("b", torch.tensor([1.0, 1.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x * self.w) + self.b


def captured(model: torch.nn.Module | None = None) -> torch.export.ExportedProgram:
    return torch.export.export(model or Model(), (X,))


def by_transform(model: torch.nn.Module | None, each: object) -> ExecutorchProgramManager:
    return to_edge(captured(model)).transform([each]).to_executorch()


def by_lowering(model: torch.nn.Module | None, each: object) -> ExecutorchProgramManager:
    return to_edge_transform_and_lower(captured(model), transform_passes=[each]).to_executorch()


def by_config(model: torch.nn.Module | None, each: object) -> ExecutorchProgramManager:
    return to_edge(captured(model)).to_executorch(ExecutorchBackendConfig(passes=[each]))


HOOKS = pytest.mark.parametrize("hook", [by_transform, by_lowering, by_config])
Hook = Callable[..., ExecutorchProgramManager]


class Program(ExportedProgramPassBase):
    """A pass over a program that calls `change` with it."""

    def __init__(self, change: Callable[[torch.export.ExportedProgram], None]) -> None:
        self.change = change

    def call(self, exported_program: torch.export.ExportedProgram) -> ExportedProgramPassResult:
        self.change(exported_program)
        return ExportedProgramPassResult(exported_program, True)


def results(program: ExecutorchProgramManager, calls: int = 1, data: object = None) -> list[np.ndarray]:
    method = pteron.load(program.buffer, data=data).load_method()
    return [np.asarray(method.execute([X.numpy()])[0]).copy() for _ in range(calls)]


def node_named(program: torch.export.ExportedProgram, name: str) -> torch.fx.Node:
    return next(node for node in program.graph.nodes if node.name == name)


def cos_for_sin(module: torch.fx.GraphModule) -> None:
    for node in module.graph.nodes:
        if node.target == ATEN.sin.default:
            node.target = ATEN.cos.default
    module.recompile()


@HOOKS
@pytest.mark.parametrize("returned", ["modified", "not modified", "nothing"])
def test_an_operator_that_a_pass_exchanged_is_in_the_file(hook: Hook, returned: str) -> None:
    def change(module: torch.fx.GraphModule) -> PassResult | None:
        cos_for_sin(module)
        return None if returned == "nothing" else PassResult(module, returned == "modified")

    model = Model()
    expected = torch.cos(X * model.w) + model.b
    np.testing.assert_allclose(results(hook(model, change))[0], expected.detach(), rtol=1e-6)


@HOOKS
def test_a_tensor_that_a_pass_put_into_the_module_is_in_the_file(hook: Hook) -> None:
    def change(module: torch.fx.GraphModule) -> PassResult:
        module.register_buffer("extra", torch.tensor([10.0, 20.0]))
        output = module.graph.output_node()
        value = output.args[0][0]
        with module.graph.inserting_before(output):
            extra = module.graph.get_attr("extra")
            total = module.graph.call_function(ATEN.add.Tensor, (value, extra))
        extra.meta["val"] = total.meta["val"] = value.meta["val"]
        output.args = ((total,),)
        return PassResult(module, True)

    model = Model()
    expected = model(X) + torch.tensor([10.0, 20.0])
    np.testing.assert_allclose(results(hook(model, change))[0], expected.detach(), rtol=1e-6)


@HOOKS
@pytest.mark.parametrize(
    "change", [lambda output: (output, output), lambda output: ()], ids=["another", "none"]
)
def test_outputs_that_the_signature_does_not_know_are_refused(
    hook: Hook, change: Callable[[torch.fx.Node], tuple[torch.fx.Node, ...]]
) -> None:
    def outputs(module: torch.fx.GraphModule) -> PassResult:
        output = module.graph.output_node()
        output.args = (change(output.args[0][0]),)
        return PassResult(module, True)

    with pytest.raises(pteron.ExportError, match="changed the number of graph outputs"):
        hook(None, outputs)


@HOOKS
def test_inputs_that_the_signature_does_not_know_are_refused(hook: Hook) -> None:
    def inputs(module: torch.fx.GraphModule) -> PassResult:
        first = next(iter(module.graph.nodes))
        with module.graph.inserting_before(first):
            module.graph.placeholder("late").meta = dict(first.meta)
        return PassResult(module, True)

    with pytest.raises(pteron.ExportError, match="changed the number of graph inputs: 3 before, 4 after"):
        hook(None, inputs)


@HOOKS
def test_a_constant_that_a_pass_exchanged_is_in_the_file(hook: Hook) -> None:
    def change(program: torch.export.ExportedProgram) -> None:
        program.state_dict["w"] = torch.nn.Parameter(torch.tensor([20.0, 30.0]))

    expected = torch.sin(X * torch.tensor([20.0, 30.0])) + 1
    np.testing.assert_allclose(results(hook(None, Program(change)))[0], expected, rtol=1e-6)


@HOOKS
@pytest.mark.parametrize(
    "exchanged", [torch.tensor([20.0, 30.0], dtype=torch.float64), torch.tensor([[20.0, 30.0]])]
)
def test_a_constant_that_is_not_what_the_graph_says_is_refused(hook: Hook, exchanged: torch.Tensor) -> None:
    def change(program: torch.export.ExportedProgram) -> None:
        program.state_dict["w"] = torch.nn.Parameter(exchanged)

    with pytest.raises(pteron.ExportError, match=r"stands for float32\[2\], and the tensor of 'w' is float"):
        hook(None, Program(change))


@HOOKS
def test_a_constant_in_another_memory_order_keeps_its_values(hook: Hook) -> None:
    class Square(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q = torch.nn.Parameter(torch.zeros(2, 2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.q

    exchanged = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).t()

    def change(program: torch.export.ExportedProgram) -> None:
        program.state_dict["q"] = torch.nn.Parameter(exchanged)

    np.testing.assert_array_equal(results(hook(Square(), Program(change)))[0], X * exchanged)


@HOOKS
def test_a_constant_that_a_pass_removed_is_gone(hook: Hook) -> None:
    def change(program: torch.export.ExportedProgram) -> None:
        signature = program.graph_signature
        buffer = node_named(program, "b_b")
        (total,) = buffer.users
        total.replace_all_uses_with(total.args[0])
        for node in (total, buffer):
            program.graph.erase_node(node)
        signature.input_specs = [spec for spec in signature.input_specs if spec.target != "b"]
        signature.output_specs[0].arg.name = program.graph.output_node().args[0][0].name
        del program.state_dict["b"]

    program = hook(None, Program(change))
    np.testing.assert_allclose(results(program)[0], torch.sin(X * torch.tensor([2.0, 3.0])), rtol=1e-6)
    assert [buffer.storage for buffer in program.executorch_program.constant_buffer][1:] == [
        memoryview(np.array([2.0, 3.0], np.float32)).cast("B")
    ]


def test_an_update_of_a_buffer_that_a_pass_added_happens_or_is_refused() -> None:
    def change(program: torch.export.ExportedProgram) -> None:
        buffer, output = node_named(program, "b_b"), program.graph.output_node()
        with program.graph.inserting_before(output):
            total = program.graph.call_function(ATEN.add.Tensor, (buffer, buffer))
        total.meta["val"] = buffer.meta["val"]
        output.args = ((total, *output.args[0]),)
        update = OutputSpec(OutputKind.BUFFER_MUTATION, TensorArgument(total.name), "b")
        program.graph_signature.output_specs.insert(0, update)

    for hook in (by_transform, by_lowering):
        first, second = results(hook(None, Program(change)), calls=2)
        np.testing.assert_allclose(second - first, [1.0, 1.0], rtol=1e-6)
    with pytest.raises(pteron.ExportError, match=r"passes=.* added an update of 'b'"):
        by_config(None, Program(change))


@HOOKS
def test_a_constant_that_a_pass_tagged_is_in_a_data_file(hook: Hook, tmp_path: Path) -> None:
    def change(module: torch.fx.GraphModule) -> PassResult:
        for node in module.graph.nodes:
            if node.name == "p_w":
                node.meta["constant_tag"] = "weights"
        return PassResult(module, True)

    program = hook(None, change)
    assert program.data_files == ("weights.ptd",)
    assert np.array([2.0, 3.0], np.float32).tobytes() not in program.buffer
    program.write_tensor_data_to_file(tmp_path)
    expected = Model()(X).detach()
    np.testing.assert_allclose(results(program, data=tmp_path / "weights.ptd")[0], expected, rtol=1e-6)


def test_a_tag_that_is_no_file_name_is_refused() -> None:
    def change(module: torch.fx.GraphModule) -> None:
        next(iter(module.graph.nodes)).meta["constant_tag"] = "../weights"

    with pytest.raises(pteron.ExportError, match=r"constant_tag of p_w: .* cannot be the name"):
        by_config(None, change)


@HOOKS
def test_handles_lines_and_names_that_a_pass_set_are_in_the_file(hook: Hook) -> None:
    def change(module: torch.fx.GraphModule) -> PassResult:
        for node in module.graph.nodes:
            if node.op == "call_function":
                node.meta["stack_trace"] = '  File "vendor.py", line 77, in forward\n    z\n'
                node.meta["debug_handle"] = 4242
            if node.name == "x":
                node.name = node.target = "renamed"
        return PassResult(module, True)

    program = hook(None, change)
    debug = next(named for named in program.executorch_program.named_data if named.key == "pteron.debug")
    text = bytes(debug.data).decode()
    assert '"files":["vendor.py"]' in text
    assert '"line":77' in text
    assert "[[4242],[4242],[4242]]" in text
    assert [spec.name for spec in pteron.load(program.buffer).load_method().inputs] == ["renamed"]


def test_ranges_of_extents_that_a_pass_set_are_in_the_file() -> None:
    class Sine(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sin(x)

    extent = torch.export.Dim("n", min=2, max=64)
    edge = to_edge(torch.export.export(Sine(), (torch.ones(4),), dynamic_shapes=({0: extent},)))

    def change(program: torch.export.ExportedProgram) -> None:
        for symbol in program.range_constraints:
            program.range_constraints[symbol] = ValueRanges(2, 8)

    for program in (
        edge.transform([Program(change)]).to_executorch(),
        edge.to_executorch(ExecutorchBackendConfig(passes=[Program(change)])),
    ):
        (spec,) = pteron.load(program.buffer).load_method().inputs
        assert "2..8" in str(spec)


def test_a_node_without_a_value_is_named() -> None:
    def change(module: torch.fx.GraphModule) -> None:
        output = module.graph.output_node()
        with module.graph.inserting_before(output):
            total = module.graph.call_function(ATEN.add.Tensor, (output.args[0][0], 1.0))
        output.args = ((total,),)

    with pytest.raises(pteron.ExportError, match=r"aten_add_tensor_1 .* has no node.meta\['val'\]"):
        by_config(None, change)


def test_what_a_pass_notes_reaches_partitioner_and_backend() -> None:
    seen: dict[str, object] = {}

    class NotesBackend(BackendDetails):
        """Looks at metadata."""

        @staticmethod
        def preprocess(edge_program, compile_specs):
            seen["backend"] = edge_program.graph_module.meta.get("vendor")
            seen["nodes"] = [node.meta.get("vendor") for node in edge_program.graph.nodes]
            return PreprocessResult(processed_bytes=b"notes")

    class NotesPartitioner(Partitioner):
        """Takes sin."""

        def partition(self, exported_program):
            seen["partitioner"] = exported_program.graph_module.meta.get("vendor")
            for node in exported_program.graph.nodes:
                if node.target == ATEN.sin.default:
                    node.meta[DELEGATION_TAG] = "sin"
            return PartitionResult(exported_program, {"sin": DelegationSpec("NotesBackend", [])})

    def note(module: torch.fx.GraphModule) -> PassResult:
        module.meta["vendor"] = "graph"
        for node in module.graph.nodes:
            node.meta["vendor"] = node.name
        return PassResult(module, True)

    to_edge(captured()).transform([note]).to_backend(NotesPartitioner())
    assert seen["partitioner"] == seen["backend"] == "graph"
    assert "aten_sin_default" in seen["nodes"]


def test_passes_of_a_backend_are_in_its_blob_and_nowhere_else() -> None:
    class PassesBackend(BackendDetails):
        """Rewrites its program before it writes the names of its operators."""

        @staticmethod
        def preprocess(edge_program, compile_specs):
            cos_for_sin(edge_program.graph_module)
            edge_program.state_dict["w"] = torch.nn.Parameter(torch.tensor([7.0, 7.0]))
            names = [node.target.__name__ for node in edge_program.graph.nodes if node.op == "call_function"]
            return PreprocessResult(processed_bytes=" ".join(names).encode())

    program = to_edge(captured()).exported_program()
    lowered = to_backend("PassesBackend", program, [])
    assert lowered.processed_bytes == b"aten.mul.Tensor aten.cos.default aten.add.Tensor"
    np.testing.assert_allclose(lowered(X).detach(), Model()(X).detach(), rtol=1e-6)
    assert any(node.target == ATEN.sin.default for node in program.graph.nodes)
