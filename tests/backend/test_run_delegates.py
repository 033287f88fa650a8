"""Lowered programs in the runtime: the same cases over the demo backend written in Rust and in Python."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.export import export

import pteron
from pteron.backends.demo import (
    AddAttributePartitionerDemo,
    AddMulPartitionerDemo,
    AllNodesPartitionerDemo,
    BackendWithCompilerDemo,
    register_demo_backends,
)
from pteron.exir import to_edge
from pteron.exir.backend.backend_api import to_backend
from pteron.exir.backend.compile_spec import CompileSpec
from pteron.exir.backend.partitioner import DelegationSpec
from tests.backend.lowering_cases import Function, SixSteps, edge, floats

DEMO = BackendWithCompilerDemo.__name__


@pytest.fixture(params=["rust", "python"])
def runtime(request):
    fresh = pteron.Runtime()
    register_demo_backends(fresh, language=request.param)
    return fresh


def demo_sin(x):
    """What the demo backend computes for sin."""
    return x - x * x * x / np.float32(6)


def buffer(module, *inputs):
    return to_edge(export(module, inputs)).to_executorch().buffer


class Sine(torch.nn.Module):
    def forward(self, x):
        return torch.sin(x)


def lowered_sine(size=1):
    return to_backend(DEMO, edge(Sine(), torch.ones(size)), [CompileSpec("max_value", bytes([4]))])


class Twice(torch.nn.Module):
    """A lowered module called twice, next to an ordinary one with a parameter."""

    def __init__(self, lowered):
        super().__init__()
        self.lowered = lowered
        self.bias = torch.nn.Parameter(torch.tensor([0.3]))

    def forward(self, x):
        a = self.lowered(x)
        b = self.lowered(a)
        return a, b, torch.add(torch.add(a, b), self.bias)


def test_whole_module_runs_in_the_backend(runtime) -> None:
    program = pteron.load(lowered_sine().buffer(), runtime=runtime)
    result = program.run("forward", floats(1))
    np.testing.assert_allclose(result, [1 - 1 / 6], rtol=1e-6)


def test_blob_in_a_segment_of_its_own(runtime) -> None:
    program = pteron.load(lowered_sine().buffer(extract_delegate_segments=True), runtime=runtime)
    np.testing.assert_allclose(program.run("forward", floats(1)), [1 - 1 / 6], rtol=1e-6)


def test_composed_module_called_twice_holds_one_blob(runtime) -> None:
    manager = to_edge(export(Twice(lowered_sine()), (torch.ones(1),))).to_executorch()
    assert len(manager.executorch_program.backend_delegate_data) == 1
    assert manager.buffer.count(b"op:demo::aten.sin.default") == 1
    x = floats(0.7)
    a, b, total = pteron.load(manager.buffer, runtime=runtime).run("forward", x)
    np.testing.assert_allclose(a, demo_sin(x), rtol=1e-6)
    np.testing.assert_allclose(b, demo_sin(demo_sin(x)), rtol=1e-6)
    np.testing.assert_allclose(total, a + b + np.float32(0.3), rtol=1e-6)


def test_nested_delegates(runtime) -> None:
    outer = to_backend("ExecutorBackend", edge(Twice(lowered_sine()), torch.ones(1)), [])
    x = floats(0.7)
    a, b, _ = pteron.load(outer.buffer(), runtime=runtime).run("forward", x)
    np.testing.assert_allclose(a, demo_sin(x), rtol=1e-6)
    np.testing.assert_allclose(b, demo_sin(demo_sin(x)), rtol=1e-6)


class Calls(torch.nn.Module):
    """One lowered module."""

    def __init__(self, lowered):
        super().__init__()
        self.lowered = lowered

    def forward(self, x):
        return self.lowered(x) + 1


def test_weights_of_a_nested_program_in_the_data_file_outside() -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(16, 2))
    model = model.to(memory_format=torch.channels_last)
    x = torch.randn(1, 3, 4, 4)
    lowered = to_backend("ExecutorBackend", edge(model, x), [CompileSpec("external_constants", b"")])
    manager = to_edge(export(Calls(lowered), (x,))).to_executorch()
    assert manager.data_files == ("_default_external_constant.ptd",)
    weight = model[2].weight.detach().numpy().tobytes()
    assert weight not in manager.buffer
    data = manager._tensor_data["_default_external_constant"]
    assert data.count(weight) == 1
    fresh = pteron.Runtime()
    register_demo_backends(fresh)
    result = pteron.load(manager.buffer, data=data, runtime=fresh).run("forward", x.numpy())
    np.testing.assert_allclose(result, (model(x) + 1).detach().numpy(), rtol=1e-5, atol=1e-6)
    with pytest.raises(pteron.DelegateError, match=r"expected 4 tensors: '0.bias', '0.weight'"):
        pteron.load(manager.buffer, runtime=fresh).load_method()


def test_equal_names_of_nested_programs_keep_their_own_weights() -> None:
    class Two(torch.nn.Module):
        def __init__(self, first, second):
            super().__init__()
            self.first, self.second = first, second

        def forward(self, x):
            return self.second(self.first(x))

    layers = [torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)]
    x = torch.randn(1, 2)
    specs = [CompileSpec("external_constants", b"")]
    lowered = [to_backend("ExecutorBackend", edge(layer, x), specs) for layer in layers]
    manager = to_edge(export(Two(*lowered), (x,))).to_executorch()
    fresh = pteron.Runtime()
    register_demo_backends(fresh)
    data = manager._tensor_data["_default_external_constant"]
    result = pteron.load(manager.buffer, data=data, runtime=fresh).run("forward", x.numpy())
    np.testing.assert_allclose(result, layers[1](layers[0](x)).detach().numpy(), rtol=1e-5)


@pytest.mark.parametrize("partitioner", [AddMulPartitionerDemo(), AllNodesPartitionerDemo()])
def test_partitioned_model_equals_eager(runtime, partitioner) -> None:
    x, y = torch.rand(1, 3) + 1, torch.rand(1, 3) + 1
    program = to_edge(export(SixSteps(), (x, y))).to_backend(partitioner).to_executorch()
    result = pteron.load(program.buffer, runtime=runtime).run("forward", x.numpy(), y.numpy())
    np.testing.assert_allclose(result, SixSteps()(x, y), rtol=1e-5)


def test_constants_of_a_delegate(runtime) -> None:
    class Offset(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
            self.offset = torch.ones(2)

        def forward(self, x):
            return torch.mm(x, self.weight) + self.offset

    x = torch.randn(2, 2)
    whole = to_backend(DEMO, edge(Offset(), x), []).buffer()
    partitioned = (
        to_edge(export(Offset(), (x,))).to_backend(AddAttributePartitionerDemo()).to_executorch().buffer
    )
    for data in (whole, partitioned):
        result = pteron.load(data, runtime=runtime).run("forward", x.numpy())
        np.testing.assert_allclose(result, Offset()(x).detach(), rtol=1e-5)


@pytest.mark.parametrize("last", [0, 1])
def test_wiring_is_kept_beside_the_blob(runtime, last) -> None:
    program = to_backend(
        DEMO, edge(Function(lambda x, y: (x + y) + (x, y)[last]), torch.ones(1), torch.ones(1)), []
    )
    result = pteron.load(program.buffer(), runtime=runtime).run("forward", floats(1), floats(10))
    np.testing.assert_array_equal(result, [[12], [21]][last])


def test_alpha_numbers_and_broadcasting(runtime) -> None:
    x, y = torch.randn(2, 1), torch.randn(3)
    model = Function(lambda x, y: torch.add(x, y, alpha=3) + 0.5)
    program = to_backend(DEMO, edge(model, x, y), [])
    result = pteron.load(program.buffer(), runtime=runtime).run("forward", x.numpy(), y.numpy())
    np.testing.assert_allclose(result, model(x, y), rtol=1e-5)


def test_several_methods_share_one_backend(runtime) -> None:
    manager = to_edge(
        {
            "encode": export(Sine(), (torch.ones(1),)),
            "decode": export(Function(torch.add), (torch.ones(1), torch.ones(1))),
        }
    ).to_backend(DelegationSpec(DEMO, []))
    program = pteron.load(manager.to_executorch().buffer, runtime=runtime)
    np.testing.assert_allclose(program.run("encode", floats(1)), [1 - 1 / 6], rtol=1e-6)
    np.testing.assert_array_equal(program.run("decode", floats(1), floats(2)), [3])


def test_structured_arguments_of_a_lowered_module(runtime) -> None:
    class Nested(torch.nn.Module):
        def forward(self, pair, *, more):
            return {"sum": pair[0] + more["b"]}

    x = torch.randn(2)
    lowered = to_backend(DEMO, edge(Nested(), (x, x), kwargs={"more": {"b": x + 1}}), [])
    method = pteron.load(lowered.buffer(), runtime=runtime).load_method("forward")
    result = method((x.numpy(), x.numpy()), more={"b": (x + 1).numpy()})
    np.testing.assert_allclose(result["sum"], x + x + 1, rtol=1e-6)


def test_dynamic_shapes_reach_the_delegate(runtime) -> None:
    dim = torch.export.Dim("n", min=1, max=8)
    program = to_edge(export(Sine(), (torch.ones(4),), dynamic_shapes=({0: dim},)))
    data = program.to_backend(DelegationSpec(DEMO, [])).to_executorch().buffer
    loaded = pteron.load(data, runtime=runtime)
    for size in (1, 5, 8):
        x = np.linspace(0, 1, size, dtype=np.float32)
        np.testing.assert_allclose(loaded.run("forward", x), demo_sin(x), rtol=1e-6)


def test_too_large_max_value_is_refused_at_load(runtime) -> None:
    lowered = to_backend(DEMO, edge(Sine(), torch.ones(1)), [CompileSpec("max_value", bytes([5]))])
    with pytest.raises(pteron.DelegateError, match="max_value"):
        pteron.load(lowered.buffer(), runtime=runtime).load_method("forward")


def test_missing_backend_is_named() -> None:
    with pytest.raises(pteron.MissingBackendError, match=DEMO):
        pteron.load(lowered_sine().buffer(), runtime=pteron.Runtime()).load_method("forward")


class Tangent(torch.nn.Module):
    def forward(self, x):
        return torch.tan(x)


class CallsTangent(torch.nn.Module):
    def __init__(self, lowered):
        super().__init__()
        self.lowered_tan = lowered

    def forward(self, x):
        y = torch.cos(torch.neg(x))
        return self.lowered_tan(y)


def test_tan_fails_with_its_handle_and_the_source_line_of_the_model(runtime) -> None:
    lowered = to_backend(DEMO, edge(Tangent(), torch.ones(1)), [])
    program = edge(CallsTangent(lowered), torch.ones(1))
    (call,) = [n for n in program.graph.nodes if "executorch_call_delegate" in n.name]
    # The caller's own numbers: what is 1 in the lowered module is neg here.
    assert call.meta["debug_handle"] == 3
    method = pteron.load(buffer(CallsTangent(lowered), torch.ones(1)), runtime=runtime).load_method("forward")
    with pytest.raises(pteron.DelegateError) as caught:
        method(floats(1))
    error = caught.value
    assert error.debug_handle == 1
    assert error.backend == DEMO
    line = Tangent.forward.__code__.co_firstlineno + 1
    for part in (
        DEMO,
        "instruction demo::aten.tan.default<debug_handle>1 is not supported, debug handle is: 1",
        f"test_run_delegates.py:{line}",
    ):
        assert part in str(error)
    assert f"test_run_delegates.py:{line}" in error.source_line


def test_two_modules_with_one_blob_keep_their_own_wiring(runtime) -> None:
    x, y = torch.ones(2), torch.ones(2) * 2
    left = to_backend(DEMO, edge(Function(lambda x, y: (x + y) + x), x, y), [])
    right = to_backend(DEMO, edge(Function(lambda x, y: (x + y) + y), x, y), [])
    assert left.processed_bytes == right.processed_bytes
    program = buffer(Function(lambda x, y: (left(x, y), right(x, y), left(y, x))), x, y)
    a, b, c = pteron.load(program, runtime=runtime).run("forward", x.numpy(), y.numpy())
    np.testing.assert_array_equal((a[0], b[0], c[0]), (4, 5, 5))


class Count(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(2))

    def forward(self, x):
        self.count.add_(x)
        return self.count + 0


def test_calls_of_a_module_with_state_share_it(runtime) -> None:
    lowered = to_backend("ExecutorBackend", edge(Count(), torch.ones(2)), [])
    program = buffer(Function(lambda x: lowered(x * 2) + lowered(x) * 10), torch.ones(2))
    method = pteron.load(program, runtime=runtime).load_method("forward")
    x = floats(1, 2)
    # The first call sees 2x and the second 3x; the next run goes on from there.
    np.testing.assert_array_equal(method(x), 32 * x)
    np.testing.assert_array_equal(method(x), 65 * x)
    other = pteron.load(program, runtime=runtime).load_method("forward")
    np.testing.assert_array_equal(other(x), 32 * x)
