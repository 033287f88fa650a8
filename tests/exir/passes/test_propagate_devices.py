"""Tensors of delegates on devices: copies, specs, memories, and what the file says of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import Dim

from pteron import _native
from pteron.compat.exir.pte_file import deserialize_pte_binary
from pteron.errors import ExportError
from pteron.exir import ExecutorchBackendConfig, ExecutorchProgramManager
from pteron.exir.edge.control_flow import graph_modules
from pteron.exir.edge.delegate_call import is_delegate_call
from pteron.exir.edge.device_copies import DEVICE_TO_HOST, HOST_TO_DEVICE, is_device_copy
from pteron.exir.edge.target_device import parse_device, target_device
from pteron.exir.edge.tensor_spec import TensorSpec
from pteron.exir.memory.memory_planning_pass import MemoryPlanningPass
from pteron.exir.memory.spec_lifetimes import specs_in
from pteron.exir.passes.propagate_device_config import PropagateDeviceConfig
from pteron.exir.passes.propagate_device_pass import PropagateDevicePass
from pteron.exir.schema import DeviceType
from pteron.exir.schema import Tensor as TensorValue
from tests.exir.device_models import on_devices
from tests.exir.small_models import random

X, Y, Z = random(2, 2), random(2, 2) + 1, random(2, 2) + 2
GPU = (DeviceType.CUDA, 0)
HOST = (DeviceType.CPU, 0)
_BOTH = PropagateDeviceConfig(skip_h2d_for_method_inputs=True, skip_d2h_for_method_outputs=True)


def _lowered(function: Any, *args: Tensor, devices: tuple[str | None, ...] = (), **options: Any):
    return on_devices(function, args, *devices).to_executorch(ExecutorchBackendConfig(**options))


def _nodes(manager: ExecutorchProgramManager) -> list[torch.fx.Node]:
    modules = graph_modules(manager.exported_program().graph_module)
    return [node for module in modules for node in module.graph.nodes]


def _copies(manager: ExecutorchProgramManager) -> tuple[int, int]:
    """(copies to a device, copies to the host)."""
    nodes = _nodes(manager)
    return tuple(  # type: ignore[return-value]
        sum(is_device_copy(node, name) for node in nodes) for name in (HOST_TO_DEVICE, DEVICE_TO_HOST)
    )


def _device(spec: TensorSpec) -> tuple[DeviceType, int]:
    return spec.device, spec.device_index


def _plan(manager: ExecutorchProgramManager) -> Any:
    """The plan of the written file."""
    return deserialize_pte_binary(manager.buffer).program.execution_plan[0]


def _memories(manager: ExecutorchProgramManager) -> dict[int, tuple[DeviceType, int]]:
    entries = _plan(manager).non_const_buffer_device or ()
    return {entry.buffer_idx: (entry.device_type, entry.device_index) for entry in entries}


def test_what_a_delegate_reads_and_gives_is_copied_at_its_border() -> None:
    manager = _lowered(torch.add, X, Y)
    assert _copies(manager) == (2, 1)
    nodes = manager.exported_program().graph_module.graph.nodes
    (call,) = [node for node in nodes if is_delegate_call(node)]
    assert [_device(spec) for spec in specs_in(call.meta["spec"])] == [GPU]
    assert all(is_device_copy(operand, HOST_TO_DEVICE) for operand in call.args[1:])
    for node in nodes:
        if is_device_copy(node, HOST_TO_DEVICE):
            assert (_device(node.args[0].meta["spec"]), _device(node.meta["spec"])) == (HOST, GPU)
        if is_device_copy(node, DEVICE_TO_HOST):
            assert (_device(node.args[0].meta["spec"]), _device(node.meta["spec"])) == (GPU, HOST)
    operators = [f"{op.name}.{op.overload}" for op in _plan(manager).operators]
    assert operators == ["et_copy::_h2d_copy.out", "et_copy::_d2h_copy.out"]


def test_the_file_says_where_memories_and_tensors_are() -> None:
    manager = _lowered(torch.add, X, Y, devices=("cuda:3",))
    plan = _plan(manager)
    assert [(e.buffer_idx, e.device_type, e.device_index) for e in plan.non_const_buffer_device] == [
        (2, DeviceType.CUDA, 3)
    ]
    tensors = [value.val for value in plan.values if isinstance(value.val, TensorValue)]
    there = [t for t in tensors if t.extra_tensor_info is not None]
    assert [(t.extra_tensor_info.device_type, t.extra_tensor_info.device_index) for t in there] == [
        (DeviceType.CUDA, 3)
    ] * 3
    for tensor in tensors:
        assert tensor.allocation_info.memory_id == (2 if tensor in there else 1)


def test_a_program_without_devices_says_nothing_of_them() -> None:
    manager = _lowered(torch.add, X, Y, devices=(None,))
    assert _copies(manager) == (0, 0)
    plan = _plan(manager)
    assert plan.non_const_buffer_device is None
    assert all(
        value.val.extra_tensor_info is None for value in plan.values if isinstance(value.val, TensorValue)
    )
    same = _lowered(torch.add, X, Y, devices=("cpu",))
    assert _copies(same) == (0, 0)
    assert _plan(same).non_const_buffer_device is None


@pytest.mark.parametrize(
    ("devices", "copies", "memories"),
    [
        (("cuda:0", "cuda:0"), (3, 1), [GPU]),
        (("cuda:0", "cuda:1"), (4, 2), [GPU, (DeviceType.CUDA, 1)]),
        (("cuda:0", None), (2, 1), [GPU]),
        ((None, "cuda:0"), (2, 1), [GPU]),
    ],
)
def test_only_a_tensor_that_stays_on_its_device_is_not_copied(devices, copies, memories) -> None:
    manager = _lowered(lambda a, b, c: (a + b) + c, X, Y, Z, devices=devices)
    assert _copies(manager) == copies
    assert list(_memories(manager).values()) == memories


def test_a_result_is_copied_to_the_host_once_for_all_its_readers_there() -> None:
    def model(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        t = a + b
        return t + a, torch.relu(t), t.view(4) * 2, t

    manager = _lowered(model, X, Y)
    # One of t for relu, the view and the caller, one of the second sum.
    assert _copies(manager) == (3, 2)


def test_a_view_of_a_result_lies_in_the_copy_s_memory() -> None:
    manager = _lowered(lambda a, b: (a + b).view(4).sin(), X, Y)
    assert _copies(manager) == (2, 1)
    views = [node for node in _nodes(manager) if node.name.startswith("view")]
    assert [_device(node.meta["spec"].root) for node in views] == [HOST]


def test_delegates_in_branches_copy_there() -> None:
    def model(x: Tensor, y: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x, y: x + y, lambda x, y: x * y, (x, y))

    manager = _lowered(model, X, Y)
    assert _copies(manager) == (2, 1)
    assert _memories(manager) == {2: GPU}


def test_dynamic_shapes() -> None:
    n = Dim("n", min=1, max=8)
    lowered = on_devices(
        lambda a, b: (a + b).sin(), (random(4, 2), random(4, 2)), dynamic_shapes=[({0: n}, {0: n})]
    )
    manager = lowered.to_executorch()
    assert _copies(manager) == (2, 1)
    assert _plan(manager).non_const_buffer_sizes[2] >= 2 * 8 * 2 * 4


class TestSkippedCopies:
    def test_inputs_and_outputs_stay_on_the_device(self) -> None:
        manager = _lowered(torch.add, X, Y, propagate_device_config=_BOTH)
        assert _copies(manager) == (0, 0)
        # Nothing is left for the CPU, so its memory is not there.
        assert _memories(manager) == {1: GPU}

    def test_only_inputs_that_a_delegate_reads_itself(self) -> None:
        config = PropagateDeviceConfig(skip_h2d_for_method_inputs=True)
        manager = _lowered(lambda a, b: a.sin() + b, X, Y, propagate_device_config=config)
        assert _copies(manager) == (1, 1)

    def test_a_constant_is_copied_since_no_caller_gives_it(self) -> None:
        held = random(2, 2)
        manager = _lowered(lambda a: a + held, X, propagate_device_config=_BOTH)
        assert _copies(manager) == (1, 0)

    def test_a_result_with_other_readers_is_copied(self) -> None:
        def model(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
            t = a + b
            return t, t.sin()

        assert _copies(_lowered(model, X, Y, propagate_device_config=_BOTH)) == (0, 1)

    def test_an_input_with_two_readers_is_refused(self) -> None:
        with pytest.raises(
            ExportError, match="requires placeholder 'args_0' to have exactly one user, but it"
        ):
            _lowered(lambda a, b: (a + b, a.sin()), X, Y, propagate_device_config=_BOTH)

    @pytest.mark.parametrize(("name", "copies"), [("forward", (0, 0)), (None, (2, 1))])
    def test_by_method(self, name: str | None, copies: tuple[int, int]) -> None:
        given = {} if name is None else {name: _BOTH}
        assert _copies(_lowered(torch.add, X, Y, propagate_device_config=given)) == copies
        by_flag = PropagateDeviceConfig({"forward": name is not None}, {"forward": name is not None})
        assert _copies(_lowered(torch.add, X, Y, propagate_device_config=by_flag)) == copies

    def test_settings_that_cannot_be(self) -> None:
        with pytest.raises(ExportError, match=r"propagate_device_config=...\): no method 'run'; methods"):
            _lowered(torch.add, X, Y, propagate_device_config={"run": _BOTH})
        with pytest.raises(ValueError, match="only meaningful when enable_non_cpu_memory_planning=True"):
            _lowered(torch.add, X, Y, propagate_device_config=_BOTH, enable_non_cpu_memory_planning=False)
        with pytest.raises(ValueError, match="enable_non_cpu_memory_planning"):
            PropagateDevicePass(skip_h2d_for_method_inputs=True)

    def test_the_caller_gives_the_memory_where_none_is_planned(self) -> None:
        planning = MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)
        manager = _lowered(torch.add, X, Y, propagate_device_config=_BOTH, memory_planning_pass=planning)
        plan = _plan(manager)
        borders = [plan.values[index].val for index in (*plan.inputs, *plan.outputs)]
        assert [tensor.allocation_info for tensor in borders] == [None] * 3
        assert {tensor.extra_tensor_info.device_type for tensor in borders} == {DeviceType.CUDA}


class TestMemory:
    def test_without_device_memory_tensors_keep_the_device_and_lie_on_the_cpu(self) -> None:
        manager = _lowered(torch.add, X, Y, enable_non_cpu_memory_planning=False)
        assert _copies(manager) == (0, 0)
        plan = _plan(manager)
        assert plan.non_const_buffer_device is None
        assert len(plan.non_const_buffer_sizes) == 2
        devices = Counter(value.val.extra_tensor_info.device_type for value in plan.values)
        assert devices == {DeviceType.CUDA: 3}

    def test_memories_of_devices_come_behind_those_that_a_pass_asked_for(self) -> None:
        def move_relu(module: torch.fx.GraphModule) -> None:
            for node in module.graph.nodes:
                if "relu" in str(node.target):
                    node.meta["memory_id"] = 3

        manager = _lowered(lambda a, b: (a + b).relu(), X, Y, passes=[move_relu])
        sizes = _plan(manager).non_const_buffer_sizes
        assert (len(sizes), sizes[2], sizes[3]) == (5, 0, 16)
        assert _memories(manager) == {4: GPU}

    def test_a_memory_id_of_a_delegate_s_result_is_refused(self) -> None:
        def move_call(module: torch.fx.GraphModule) -> None:
            for node in module.graph.nodes:
                if is_delegate_call(node):
                    node.meta["memory_id"] = 2

        with pytest.raises(ExportError, match="is set on a tensor on device cuda:0"):
            _lowered(torch.add, X, Y, passes=[move_call])

    def test_shared_buffers_keep_the_number_of_their_memory(self) -> None:
        class Sum(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("total", torch.zeros(2, 2))

            def forward(self, x: Tensor, y: Tensor) -> Tensor:
                self.total.mul_(x)
                return self.total * (x + y)

        from torch.export import export

        from pteron.exir import to_edge
        from tests.exir.device_models import AddsOnDevices

        programs = {"a": export(Sum(), (X, Y)), "b": export(torch.nn.Identity(), (X,))}
        lowered = to_edge(programs).to_backend(AddsOnDevices("cuda:0"))
        planning = MemoryPlanningPass(share_mutable_buffers=True)
        manager = lowered.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))
        first, second = deserialize_pte_binary(manager.buffer).program.execution_plan
        assert [entry.buffer_idx for entry in first.non_const_buffer_device] == [3]
        assert (first.non_const_buffer_sizes[2], second.non_const_buffer_sizes[2]) == (16, 16)
        assert second.non_const_buffer_device is None


def test_a_target_without_the_copies_is_refused() -> None:
    with pytest.raises(ExportError, match=r"the target has no kernel et_copy::_h2d_copy.out"):
        _lowered(torch.add, X, Y, kernels=["aten::add.out"])
    assert _copies(_lowered(torch.add, X, Y, kernels="executorch-portable")) == (2, 1)


def test_packed_weights_beside_devices_are_refused() -> None:
    with pytest.raises(ExportError, match=r"packed_weights=True\): method 'forward' has memory on another"):
        _lowered(torch.add, X, Y, packed_weights=True)


@pytest.mark.parametrize(
    ("value", "device"),
    [
        (b"cuda:1", (DeviceType.CUDA, 1)),
        (b" CUDA\0", GPU),
        (b"cpu", HOST),
        (b"Cuda:127", (DeviceType.CUDA, 127)),
    ],
)
def test_names_of_devices(value: bytes, device: tuple[DeviceType, int]) -> None:
    assert parse_device(value) == device


@pytest.mark.parametrize("value", [b"tpu:0", b"", b"cuda:-1", b"cuda:128", b"cuda:x"])
def test_names_of_no_device(value: bytes) -> None:
    with pytest.raises(ValueError):
        parse_device(value)
    assert target_device([]) is None


def test_objects_of_executorch_s_file_are_written_as_the_same_program() -> None:
    sample = Path(__file__).parents[3] / "schema" / "samples" / "executorch_devices.pte"
    program = deserialize_pte_binary(sample.read_bytes()).program
    assert [entry.device_index for entry in program.execution_plan[0].non_const_buffer_device] == [1]
    assert _native.listing(_native.serialize_program(program)) == sample.with_suffix(".txt").read_text()
