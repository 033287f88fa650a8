"""Tensors in memories of their own."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import pteron
from pteron.errors import ExportError
from pteron.exir import EdgeProgramManager, ExecutorchBackendConfig
from pteron.exir.edge.exir_ops import exir_ops
from pteron.exir.edge.tensor_spec import TensorSpec
from pteron.exir.memory.memory_planning_pass import MemoryPlanningPass
from tests.exir.small_models import PORTABLE, edge_of, edge_program_of, random

_COS = exir_ops.edge.aten.cos.default


@pytest.fixture(scope="module")
def chain() -> EdgeProgramManager:
    return edge_of(lambda x: x.sin().cos().exp().log(), random(4, 4))


def _request(target: Any, memory_id: Any):
    def request(module: torch.fx.GraphModule) -> None:
        for node in module.graph.nodes:
            if node.target is target or node.op == target:
                node.meta["memory_id"] = memory_id

    return request


def _config(*passes: Any, **options: Any) -> ExecutorchBackendConfig:
    return ExecutorchBackendConfig(passes=list(passes), kernels="executorch-portable", **options)


def _sizes(manager) -> list[int]:
    return manager.executorch_program.execution_plan[0].non_const_buffer_sizes


def test_a_pass_moves_a_tensor_into_another_memory(chain) -> None:
    x = random(4, 4)
    manager = chain.to_executorch(_config(_request(_COS, 3)))
    assert _sizes(manager) == [0, 128, 0, 64]
    expected = x.sin().cos().exp().log()
    got = pteron.load(manager.buffer).load_method("forward")(x.numpy())
    torch.testing.assert_close(torch.from_numpy(got), expected)


def test_executorch_runs_a_program_with_several_memories(chain) -> None:
    runtime = pytest.importorskip("executorch.runtime", reason="needs the executorch wheel")
    x = random(4, 4)
    buffer = chain.to_executorch(_config(_request(_COS, 2))).buffer
    (got,) = runtime.Runtime.get().load_program(buffer).load_method("forward").execute([x])
    torch.testing.assert_close(got, x.sin().cos().exp().log())


def test_inputs_and_state_can_be_moved_too() -> None:
    def request(module: torch.fx.GraphModule) -> None:
        for node in module.graph.nodes:
            if node.op == "placeholder" and "constant" not in node.name:
                node.meta["memory_id"] = 2

    manager = edge_program_of("accumulator").to_executorch(_config(request))
    # The state of 12 bytes beside the input of 12 bytes; the sum and the result stay in memory 1.
    assert _sizes(manager)[2] == 32
    method = pteron.load(manager.buffer).load_method("forward")
    assert [method(torch.ones(3).numpy()).tolist() for _ in range(2)] == [[4, 6, 8], [6, 8, 10]]


class _SineAtAFixedPlace(MemoryPlanningPass):
    def run(self, program):
        for node in program.graph.nodes:
            if node.target is torch.ops.aten.sin.out:
                node.meta["spec"].memory_id, node.meta["spec"].memory_offset = 1, 256
        return super().run(program)


def test_a_tensor_with_a_place_keeps_it(chain) -> None:
    manager = chain.to_executorch(_config(memory_planning_pass=_SineAtAFixedPlace()))
    program = manager.exported_program()
    offsets = {
        spec.memory_offset
        for node in program.graph.nodes
        if isinstance(spec := node.meta.get("spec"), TensorSpec) and node.target is not torch.ops.aten.sin.out
    }
    assert min(offsets - {256}) == 320
    assert _sizes(manager)[1] >= 320 + 64
    x = random(4, 4)
    got = pteron.load(manager.buffer).load_method("forward")(x.numpy())
    torch.testing.assert_close(torch.from_numpy(got), x.sin().cos().exp().log())


@pytest.mark.parametrize(
    ("memory_id", "says"),
    [
        (0, "is 0, expected an integer from 1 to 255"),
        (256, "is 256, expected"),
        ("sram", "is 'sram', expected"),
        ([2, 3], "names 2 memories for 1 tensors"),
    ],
)
def test_a_memory_that_cannot_be_is_refused_with_its_line(chain, memory_id, says) -> None:
    with pytest.raises(ExportError, match=says) as caught:
        chain.to_executorch(_config(_request(_COS, memory_id)))
    assert "exir/small_models.py:" in caught.value.source_line


def test_constants_and_the_callers_tensors_have_no_memory_id(chain) -> None:
    with pytest.raises(ExportError, match="on a constant"):
        edge_program_of("mlp").to_executorch(_config(_request("placeholder", 2)))
    planning = MemoryPlanningPass(alloc_graph_input=False)
    with pytest.raises(ExportError, match="whose memory the caller gives"):
        chain.to_executorch(_config(_request("placeholder", 2), memory_planning_pass=planning))


def test_a_view_is_where_its_base_is() -> None:
    edge = edge_of(lambda x: x.sin().view(16).exp(), random(4, 4))
    view = exir_ops.edge.aten.view_copy.default
    sine = exir_ops.edge.aten.sin.default
    assert _sizes(edge.to_executorch(_config(_request(view, 2)))) == [0, 64, 64]
    with pytest.raises(ExportError, match="is 3, but the tensor it shares memory with is in 2"):
        edge.to_executorch(_config(_request(sine, 2), _request(view, 3)))


def test_programs_for_executorch_have_one_memory_by_default(chain) -> None:
    assert len(_sizes(chain.to_executorch(PORTABLE))) == 2
