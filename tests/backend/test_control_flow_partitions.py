"""Partitions inside the bodies of control-flow operators: cut, lowered, written and run."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.export import export

import pteron
from pteron.backends.demo import BackendWithCompilerDemo, ExecutorBackend, register_demo_backends
from pteron.exir import to_edge
from pteron.exir.backend.backend_api import to_backend
from pteron.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from pteron.exir.edge.control_flow import graph_modules, is_control_flow
from pteron.exir.edge.delegate_call import is_delegate_call
from tests.backend.lowering_cases import RecordingBackend


class Weighted(torch.nn.Module):
    """A body that reads a parameter; subclasses say what runs it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([[1.0, 2.0], [0.5, -1.0]]))

    def step(self, v: torch.Tensor) -> torch.Tensor:
        return torch.tanh(v + self.weight) + v


class Cond(Weighted):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, self.step, lambda v: v * 2.0, (x,)) + x


class NestedCond(Weighted):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def inner(v: torch.Tensor) -> torch.Tensor:
            return torch.cond(v.sum() > 2, self.step, lambda u: u - 1.0, (v,))

        return torch.cond(x.sum() > 0, inner, lambda v: v * 2.0, (x,))


class Map(Weighted):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from functorch.experimental.control_flow import map as map_over

        return map_over(lambda row, w: torch.tanh(row + w) + row, x, self.weight[0])


class Scan(Weighted):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        from torch._higher_order_ops.scan import scan

        def body(carry: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            following = torch.tanh(carry + row)
            return following, following + self.weight[1]

        return scan(body, torch.zeros(2), x)


class While(Weighted):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        from torch._higher_order_ops.while_loop import while_loop

        def goes_on(i: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return i < 3

        def body(i: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return i + 1, self.step(v)

        return while_loop(goes_on, body, (torch.tensor(0), x))


class FloatAdds(Partitioner):
    """Sends float additions to a backend, at the top and in every body, with the constants at the top."""

    def __init__(self, backend: str) -> None:
        super().__init__()
        self.spec_of_all = DelegationSpec(backend, [])

    def partition(self, exported_program):
        tags = {}
        for module in graph_modules(exported_program.graph_module):
            for node in module.graph.nodes:
                if "aten.add.Tensor" in str(node.target) and node.meta["val"].dtype is torch.float32:
                    node.meta["delegation_tag"] = f"t{len(tags)}"
                    tags[f"t{len(tags)}"] = self.spec_of_all
        return PartitionResult(exported_program, tags)


MODELS = [Cond, NestedCond, Map, Scan, While]
#: Delegates of each.
COUNTS = {Cond: 3, NestedCond: 2, Map: 2, Scan: 2, While: 2}
X = torch.tensor([[0.1, 0.2], [0.3, 0.4]])


@pytest.fixture(scope="module", params=MODELS, ids=lambda model: model.__name__)
def lowerable(request):
    model = request.param().eval()
    return model, to_edge(export(model, (X,)))


def test_bodies_are_lowered_with_their_constants_as_inputs(lowerable) -> None:
    model, manager = lowerable
    program = manager.exported_program()
    lowered = to_backend(program, FloatAdds("RecordingBackend"))
    assert len(RecordingBackend.programs) == COUNTS[type(model)]
    assert all(inner.state_dict == {} for inner in RecordingBackend.programs)
    assert set(lowered.state_dict) == {"weight"}
    handles = []
    for module in graph_modules(lowered.graph_module):
        assert not any("delegation_tag" in node.meta for node in module.graph.nodes)
        calls = [node for node in module.graph.nodes if is_delegate_call(node)]
        assert all(isinstance(call.meta["val"][0], torch.Tensor) for call in calls)
        handles += [call.meta["debug_handle"] for call in calls]
    assert len(set(handles)) == len(handles) == COUNTS[type(model)]
    assert not any(is_delegate_call(n) for m in graph_modules(program.graph_module) for n in m.graph.nodes)
    lowered.validate()
    for x in (X, X * 5, -X):
        torch.testing.assert_close(lowered.module()(x), model(x))


@pytest.mark.parametrize("language", ["rust", "python"])
def test_delegates_run_in_every_iteration(lowerable, language) -> None:
    model, manager = lowerable
    runtime = pteron.Runtime()
    register_demo_backends(runtime, language=language)
    lowered = manager.to_backend(FloatAdds(BackendWithCompilerDemo.__name__))
    program = pteron.load(lowered.to_executorch().buffer, runtime=runtime)
    assert program.backends("forward") == (BackendWithCompilerDemo.__name__,)
    for x in (X, X * 5, -X):
        with torch.no_grad():
            expected = model(x)
        got = program.run("forward", x.numpy())
        for left, right in zip(*(t if isinstance(t, tuple) else (t,) for t in (got, expected)), strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-6)


def test_control_flow_goes_whole_to_a_backend(lowerable) -> None:
    model, manager = lowerable
    lowered = manager.to_backend(DelegationSpec("RecordingBackend", [])).exported_program()
    [inner] = RecordingBackend.programs
    assert "weight" in inner.state_dict
    assert lowered.state_dict == {}
    torch.testing.assert_close(lowered.module()(X), model(X))


class Both(Partitioner):
    """Sends control flow to a backend, and float additions everywhere, those in its bodies too."""

    def partition(self, exported_program):
        tags = {}
        for module in graph_modules(exported_program.graph_module):
            for node in module.graph.nodes:
                if is_control_flow(node) or "aten.add.Tensor" in str(node.target):
                    node.meta["delegation_tag"] = f"t{len(tags)}"
                    tags[f"t{len(tags)}"] = DelegationSpec("RecordingBackend", [])
        return PartitionResult(exported_program, tags)


def test_tags_in_bodies_that_a_delegate_takes_are_left_alone(lowerable) -> None:
    model, manager = lowerable
    lowered = to_backend(manager.exported_program(), Both())
    [*_, outer] = [p for p in RecordingBackend.programs if any(map(is_control_flow, p.graph.nodes))]
    inside = [node for body in graph_modules(outer.graph_module) for node in body.graph.nodes]
    assert not any(is_delegate_call(node) for node in inside)
    assert any("aten.add.Tensor" in str(node.target) for node in inside)
    assert not any(is_control_flow(n) for m in graph_modules(lowered.graph_module) for n in m.graph.nodes)
    lowered.validate()
    torch.testing.assert_close(lowered.module()(X), model(X))


def test_a_whole_program_with_control_flow_nests(lowerable) -> None:
    model, manager = lowerable
    runtime = pteron.Runtime()
    register_demo_backends(runtime)
    inner = manager.to_backend(FloatAdds(BackendWithCompilerDemo.__name__)).exported_program()
    lowered = to_backend(ExecutorBackend.__name__, inner, [])
    got = pteron.load(lowered.buffer(), runtime=runtime).run("forward", (X * 5).numpy())
    with torch.no_grad():
        expected = model(X * 5)
    for left, right in zip(*(t if isinstance(t, tuple) else (t,) for t in (got, expected)), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-6)


def test_a_tagged_input_of_a_body_is_refused() -> None:
    class TagsInput(Partitioner):
        def partition(self, exported_program):
            *_, body = graph_modules(exported_program.graph_module)
            for node in body.graph.nodes:
                if node.op in ("placeholder", "call_function"):
                    node.meta["delegation_tag"] = "t"
            return PartitionResult(exported_program, {"t": DelegationSpec("RecordingBackend", [])})

    manager = to_edge(export(Cond(), (X,)))
    with pytest.raises(RuntimeError, match=r"should not be tagged: .*an input of a control-flow branch"):
        manager.to_backend(TagsInput())
