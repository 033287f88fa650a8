"""The flows in the spelling of the first published examples, with only the import lines changed."""

from __future__ import annotations

import json

import pytest
import torch

import pteron
import pteron.exir as exir
from pteron.backends.demo import AddMulPartitionerDemo, BackendWithCompilerDemo
from pteron.errors import ExportError
from pteron.exir.backend.backend_api import (
    MethodCompileSpec,
    MethodProgramsPartitionerSpec,
    lower_all_submodules_to_backend,
    remove_used_metadata,
    to_backend,
)
from pteron.exir.backend.compile_spec import CompileSpec
from pteron.exir.capture import CaptureConfig, CapturedProgram, capture
from pteron.exir.passes.spec_prop_pass import SpecPropPass
from tests.support.own_interpreter import output_of


class LowerableSubModel(torch.nn.Module):
    def forward(self, x):
        return torch.sin(x)


class NonLowerableSubModel(torch.nn.Module):
    def __init__(self, bias):
        super().__init__()
        self.bias = bias

    def forward(self, a, b):
        return torch.add(torch.add(a, b), self.bias)


class CompositeModel(torch.nn.Module):
    def __init__(self, lowered):
        super().__init__()
        self.non_lowerable = NonLowerableSubModel(torch.ones(1) * 0.3)
        self.lowerable = lowered

    def forward(self, x):
        a = self.lowerable(x)
        b = self.lowerable(a)
        ret = self.non_lowerable(a, b)
        return a, b, ret


class Model(torch.nn.Module):
    def forward(self, x, y):
        x = x + y
        x = x * y
        x = x - y
        x = x / y
        x = x * y
        return x + y


def lowered_sine():
    to_be_lowered = capture(LowerableSubModel(), (torch.ones(1),)).to_edge()
    return to_backend("BackendWithCompilerDemo", to_be_lowered, [])


@pytest.fixture
def load():
    """The loader of the examples."""
    from pteron.compat.portable_lib import _load_for_executorch_from_buffer

    return _load_for_executorch_from_buffer


def test_capture_is_part_of_exir() -> None:
    assert exir.capture is capture
    assert exir.CaptureConfig is CaptureConfig


def test_flow_1(load) -> None:
    module = load(lowered_sine().buffer())
    (result,) = module.forward([torch.ones(1)])
    assert isinstance(result, torch.Tensor)
    torch.testing.assert_close(result, torch.tensor([1 - 1 / 6]))


def test_flow_2(load) -> None:
    exec_prog = capture(CompositeModel(lowered_sine()), (torch.ones(1),)).to_edge().to_executorch()
    a, b, ret = load(exec_prog.buffer).forward((torch.ones(1),))
    torch.testing.assert_close(a, torch.tensor([1 - 1 / 6]))
    torch.testing.assert_close(b, a - a**3 / 6)
    torch.testing.assert_close(ret, a + b + 0.3)


def test_flow_3(load) -> None:
    inputs = (torch.rand(1, 3) + 1, torch.rand(1, 3) + 1)
    gm = capture(Model(), inputs).to_edge()
    exec_prog = to_backend(gm, AddMulPartitionerDemo).to_executorch(
        exir.ExecutorchBackendConfig(passes=SpecPropPass())
    )
    module = load(exec_prog.buffer)
    expected = Model()(*inputs)
    for (result,) in (module.forward([*inputs]), module.run_method("forward", inputs), module(inputs)):
        torch.testing.assert_close(result, expected)
    assert module.method_names() == ["forward"]
    meta = module.method_meta("forward")
    assert (meta.name(), meta.num_outputs()) == ("forward", 1)
    assert meta.input_tensor_meta(0).dtype() == 6
    with pytest.raises(pteron.MethodNotFoundError):
        module.method_meta("backward")


_LOADING = """
import sys

sys.modules["torch"] = None
import numpy
import pteron
from pteron.compat.portable_lib import _load_for_executorch

one = numpy.ones(1, "float32")
before = pteron.Runtime.shared().backends
assert not {"BackendWithCompilerDemo", "ExecutorBackend"} & set(before), before
_load_for_executorch(sys.argv[2])
assert pteron.Runtime.shared().backends == before, "a program without delegates registers nothing"
(result,) = _load_for_executorch(sys.argv[1]).forward([one])
assert abs(result[0] - (1 - 1 / 6)) < 1e-6
assert {"BackendWithCompilerDemo", "ExecutorBackend"} <= set(pteron.Runtime.shared().backends)
_load_for_executorch(sys.argv[1]).forward([one])
"""


def test_the_loader_brings_the_demo_backends(tmp_path) -> None:
    """In a process where nobody registered any, and without torch."""
    (tmp_path / "delegate.pte").write_bytes(lowered_sine().buffer())
    plain = capture(Model(), (torch.ones(1), torch.ones(1))).to_edge().to_executorch()
    plain.save(tmp_path / "plain.pte")
    assert output_of(_LOADING, tmp_path / "delegate.pte", tmp_path / "plain.pte") == ""


def test_the_loader_keeps_a_backend_that_is_registered() -> None:
    from pteron.backends.demo import CompilerDemoRuntime, register_missing_demo_backends

    runtime = pteron.Runtime()
    pteron.register_backend("BackendWithCompilerDemo", CompilerDemoRuntime(), runtime=runtime)
    register_missing_demo_backends(runtime)
    register_missing_demo_backends(runtime)
    assert {"BackendWithCompilerDemo", "ExecutorBackend"} <= set(runtime.backends)


def test_a_single_tensor_is_a_list_of_one(load) -> None:
    module = load(lowered_sine().buffer())
    for result in (
        module(torch.ones(1)),
        module.forward(torch.ones(1)),
        module.run_method("forward", torch.ones(1)),
    ):
        torch.testing.assert_close(result[0], torch.tensor([1 - 1 / 6]))


def test_numpy_in_numpy_out(load) -> None:
    import numpy as np

    (result,) = load(lowered_sine().buffer()).forward([np.ones(1, np.float32)])
    assert isinstance(result, np.ndarray)


def test_loader_reads_files_and_refuses_unknown_options(load, tmp_path) -> None:
    from pteron.compat.portable_lib import _load_for_executorch

    path = tmp_path / "delegate.pte"
    path.write_bytes(lowered_sine().buffer())
    (result,) = _load_for_executorch(str(path)).forward([torch.ones(1)])
    torch.testing.assert_close(result, torch.tensor([1 - 1 / 6]))
    assert _load_for_executorch(path, enable_etdump=True).has_etdump()


class TanModule(torch.nn.Module):
    def forward(self, x):
        return torch.tan(x)


class TanInside(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = TanModule()

    def forward(self, x):
        return self.body(torch.sin(torch.sin(x)))


class CompositeModelWithTan(torch.nn.Module):
    def __init__(self, lowered):
        super().__init__()
        self.lowered_tan = lowered

    def forward(self, x):
        return self.lowered_tan(torch.neg(torch.abs(torch.neg(torch.abs(x)))))


@pytest.mark.parametrize(
    ("model", "handle", "module"), [(TanModule(), 1, "TanModule"), (TanInside(), 3, "body")]
)
def test_error_example(load, model, handle, module) -> None:
    edgeir_m = capture(model, (torch.ones(1),)).to_edge()
    composite = CompositeModelWithTan(to_backend("BackendWithCompilerDemo", edgeir_m, []))
    composite(torch.ones(1))
    exec_prog = capture(composite, (torch.ones(1),)).to_edge().to_executorch()
    with pytest.raises(
        pteron.DelegateError, match=rf"is not supported, debug handle is: {handle}\b"
    ) as caught:
        load(exec_prog.buffer).forward([torch.ones(1)])
    line = TanModule.forward.__code__.co_firstlineno + 1
    assert caught.value.debug_handle == handle
    assert caught.value.operator == "aten.tan.default"
    assert caught.value.instruction == 4
    assert caught.value.source_line is not None
    assert caught.value.source_line.endswith(f"test_older_spellings.py:{line} ({module})")
    assert caught.value.source_line in str(caught.value)


def test_the_callers_handle_of_a_delegate_call_is_another_number() -> None:
    edgeir_m = capture(TanInside(), (torch.ones(1),)).to_edge()
    composite = CompositeModelWithTan(to_backend("BackendWithCompilerDemo", edgeir_m, []))
    buffer = capture(composite, (torch.ones(1),)).to_edge().to_executorch().buffer
    table = json.loads(bytes(pteron.load(buffer).named_data["pteron.debug"]))["methods"]["forward"]
    assert table["instructions"] == [[1], [2], [3], [4], [5]]
    assert table["handles"]["5"]["operator"] == "executorch_call_delegate"
    assert table["handles"]["1"]["module"] == "CompositeModelWithTan"
    delegate = table["delegates"]["0"]["handles"]
    assert {handle: entry["operator"] for handle, entry in delegate.items()} == {
        "1": "aten.sin.default",
        "2": "aten.sin.default",
        "3": "aten.tan.default",
    }
    assert [delegate[handle]["module"] for handle in "123"] == ["TanInside", "TanInside", "body"]


def test_captured_programs_are_accepted_by_every_form_of_to_backend() -> None:
    inputs = (torch.ones(1), torch.ones(1))
    captured = capture(Model(), inputs).to_edge()
    lowered = to_backend(captured, AddMulPartitionerDemo())
    assert isinstance(lowered, CapturedProgram)
    assert lowered.is_edge
    torch.testing.assert_close(lowered(*inputs), Model()(*inputs))
    methods = to_backend(
        MethodProgramsPartitionerSpec({"forward": captured}, {"forward": AddMulPartitionerDemo})
    )
    assert isinstance(methods["forward"], CapturedProgram)


def test_method_compile_spec_is_a_list_of_compile_specs() -> None:
    specs = MethodCompileSpec([CompileSpec("max_value", bytes([4]))])
    captured = capture(LowerableSubModel(), (torch.ones(1),)).to_edge()
    assert to_backend("BackendWithCompilerDemo", captured, specs).compile_specs == list(specs)
    with pytest.raises(TypeError, match="expected CompileSpec"):
        MethodCompileSpec(["max_value"])


def test_lowered_program_as_attribute_and_as_method() -> None:
    lowered = lowered_sine()
    assert lowered.program.execution_plan[0].delegates[0].id == BackendWithCompilerDemo.__name__
    plain, traced = lowered.program(), lowered.program(emit_stacktrace=True)
    chain = traced.execution_plan[0].chains[0]
    assert len(chain.stacktrace) == len(chain.instructions)
    chain.stacktrace = None
    assert plain == traced


def test_lower_all_submodules_and_remove_used_metadata() -> None:
    from pteron.exir.backend.partition_calls import cut_partitions, tag_program

    program = capture(Model(), (torch.ones(1), torch.ones(1))).to_edge().exported_program
    tagged, tags = tag_program(program, AddMulPartitionerDemo())
    calls = cut_partitions(tagged, tags)
    assert all("submodule_program" in call.meta for call in calls)
    lower_all_submodules_to_backend("BackendWithCompilerDemo", {"forward": calls}, {"forward": tagged})
    next(iter(tagged.graph.nodes)).meta["delegation_tag"] = "left over"
    remove_used_metadata(tagged.graph)
    assert not any({"delegation_tag", "submodule_program"} & set(n.meta) for n in tagged.graph.nodes)
    tagged.validate()
    inputs = torch.rand(1) + 1, torch.rand(1) + 1
    torch.testing.assert_close(tagged.module()(*inputs), Model()(*inputs))


def test_stages_out_of_order_are_refused() -> None:
    captured = capture(LowerableSubModel(), (torch.ones(1),))
    with pytest.raises(ExportError, match="Must run to_edge before to_executorch"):
        captured.to_executorch()
    with pytest.raises(ExportError, match="in edge dialect already"):
        captured.to_edge().to_edge()
    with pytest.raises(ExportError, match="Expect `args` to be a tuple"):
        capture(LowerableSubModel(), torch.ones(1))
    with pytest.raises(ExportError, match="pt2_mode=False"):
        CaptureConfig(pt2_mode=False)


def test_functions_and_methods_are_captured() -> None:
    class Holder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(2))

        def scale(self, x):
            return x * self.weight

    captured = capture(Holder().scale, (torch.ones(2),)).to_edge()
    assert list(captured.exported_program.state_dict) == ["owner.weight"]
    assert capture(torch.sin, (torch.ones(2),))(torch.zeros(2)).sum() == 0
    changed = captured.transform(lambda graph_module: None)
    torch.testing.assert_close(changed(torch.ones(2)), torch.ones(2))


def test_every_dimension_can_be_made_dynamic() -> None:
    captured = capture(LowerableSubModel(), (torch.ones(4),), CaptureConfig(enable_dynamic_shape=True))
    torch.testing.assert_close(captured(torch.ones(7)), torch.sin(torch.ones(7)))


def test_programs_are_printed(capsys) -> None:
    from pteron.compat.executorch.exir.print_program import pretty_print, print_program

    captured = exir.capture(LowerableSubModel(), (torch.ones(1),))
    program = captured.to_edge().to_executorch().executorch_program
    print_program(program)
    assert "aten::sin" in capsys.readouterr().out
    pretty_print(program.execution_plan[0].operators)
    assert "aten::sin" in capsys.readouterr().out
