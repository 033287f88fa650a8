"""Delegate calls in emitted programs, and operators that are kept whole for a backend."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.export import ExportedProgram, export

from pteron.errors import ExportError
from pteron.exir import ExecutorchProgramManager, schema, to_edge, to_edge_transform_and_lower
from pteron.exir.backend.backend_api import to_backend
from pteron.exir.backend.backend_details import BackendDetails, PreprocessResult
from pteron.exir.backend.compile_spec import CompileSpec
from pteron.exir.backend.named_data_store import NamedDataStore
from pteron.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from tests.exir.small_models import PORTABLE, edge_of, random, targets


class EmittingBackend(BackendDetails):
    """A blob that names the operators, named data beside it, and a debug map with ids of its own."""

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        calls = [node for node in edge_program.graph.nodes if node.op == "call_function"]
        store = NamedDataStore()
        store.add_named_data("emitting.table", b"shared by all", alignment=32)
        return PreprocessResult(
            processed_bytes=",".join(str(node.target) for node in calls).encode(),
            debug_handle_map={f"step{i}": (node.meta["debug_handle"],) for i, node in enumerate(calls)},
            data_store_output=store.get_named_data_store_output(),
        )


class TagCalls(Partitioner):
    """Sends the calls that `takes` accepts to `EmittingBackend`, one delegate each."""

    def __init__(
        self,
        takes: Callable[[torch.fx.Node], bool],
        keep: list[Any] | None = None,
        keeps: Callable[[torch.fx.Node], bool] | None = None,
    ) -> None:
        super().__init__()
        self.takes, self.keep, self.keeps = takes, keep or [], keeps

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        tags = {}
        for node in exported_program.graph.nodes:
            if node.op == "call_function" and self.takes(node):
                tag = node.meta["delegation_tag"] = f"tag{len(tags)}"
                tags[tag] = DelegationSpec("EmittingBackend", [])
        return PartitionResult(exported_program, tags)

    def ops_to_not_decompose(self, ep: ExportedProgram) -> tuple[list[Any], Any]:
        return self.keep, self.keeps


def _named(name: str) -> Callable[[torch.fx.Node], bool]:
    return lambda node: getattr(node.target, "__name__", "") == name


class Twice(torch.nn.Module):
    """Calls a lowered module twice, next to an operator of its own."""

    def __init__(self, lowered: torch.nn.Module) -> None:
        super().__init__()
        self.lowered = lowered

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lowered(self.lowered(x).exp())


def _twice() -> ExecutorchProgramManager:
    program = edge_of(lambda x: x.sin().cos(), random(2, 3)).exported_program()
    lowered = to_backend("EmittingBackend", program, [CompileSpec("level", b"\x02")])
    return to_edge(export(Twice(lowered), (random(2, 3),))).to_executorch(PORTABLE)


def test_two_calls_of_one_module_have_one_blob() -> None:
    program = _twice().executorch_program
    plan = program.execution_plan[0]
    assert [blob.data for blob in program.backend_delegate_data] == [b"aten.sin.default,aten.cos.default"]
    assert [(entry.id, entry.processed.index) for entry in plan.delegates] == [("EmittingBackend", 0)] * 2
    assert plan.delegates[0].compile_specs == [schema.CompileSpec("level", b"\x02")]
    steps = [step.instr_args for step in plan.chains[0].instructions]
    assert [type(step).__name__ for step in steps] == ["DelegateCall", "KernelCall", "DelegateCall"]
    assert [steps[0].delegate_index, steps[2].delegate_index] == [0, 1]


def test_a_call_has_the_flat_inputs_then_the_outputs() -> None:
    plan = _twice().executorch_program.execution_plan[0]
    first, exp, second = (step.instr_args for step in plan.chains[0].instructions)
    assert first.args[:-1] == plan.inputs
    assert exp.args == [first.args[-1], second.args[0], second.args[0]]
    assert second.args[1:] == plan.outputs
    value = plan.values[first.args[-1]].val
    assert isinstance(value, schema.Tensor)
    assert value.sizes == [2, 3]
    assert value.allocation_info is not None


def test_named_data_of_backends_is_stored_once() -> None:
    data = [entry for entry in _twice().executorch_program.named_data if entry.key == "emitting.table"]
    assert data == [schema.NamedData("emitting.table", b"shared by all", 32)]


def test_handles_of_a_delegate_have_a_table_of_their_own() -> None:
    manager = _twice()
    [entry] = [e for e in manager.executorch_program.named_data if e.key == "pteron.debug"]
    method = json.loads(bytes(entry.data))["methods"]["forward"]
    assert method["instructions"] == [[1], [2], [3]]
    assert method["handles"]["2"]["operator"] == "aten.exp.default"
    assert set(method["delegates"]) == {"0", "1"}
    delegate = method["delegates"]["1"]
    assert delegate["backend"] == "EmittingBackend"
    assert delegate["map"] == {"step0": [1], "step1": [2]}
    assert [delegate["handles"][h]["operator"] for h in ("1", "2")] == [
        "aten.sin.default",
        "aten.cos.default",
    ]
    assert manager.debug_handle_map == {"forward": {0: [1, 2], 1: 2, 2: [1, 2]}}
    assert manager.delegate_map["forward"][0]["name"] == "EmittingBackend"
    assert manager.delegate_map["forward"][0]["delegate_map"] == {"step0": (1,), "step1": (2,)}


def test_inputs_and_outputs_of_a_delegate_share_no_memory() -> None:
    manager = edge_of(lambda x: x.sin().exp().sin(), random(4)).to_backend(
        TagCalls(_named("aten.exp.default"))
    )
    plan = manager.to_executorch(PORTABLE).executorch_program.execution_plan[0]
    call = plan.chains[0].instructions[1].instr_args
    assert isinstance(call, schema.DelegateCall)
    places = [plan.values[index].val.allocation_info.memory_offset for index in call.args]
    assert len(set(places)) == 2


def test_partitions_run_in_their_place() -> None:
    manager = edge_of(lambda x: x.sin().exp().sin(), random(4)).to_backend(
        TagCalls(_named("aten.sin.default"))
    )
    assert str(manager.delegation_report()["forward"]).startswith(
        "2 delegates with 2 operators, 1 operator in the runtime"
    )
    plan = manager.to_executorch(PORTABLE).executorch_program.execution_plan[0]
    kinds = [type(step.instr_args).__name__ for step in plan.chains[0].instructions]
    assert kinds == ["DelegateCall", "KernelCall", "DelegateCall"]


def test_only_the_methods_that_a_dict_names_are_lowered() -> None:
    captured = export(torch.nn.Sigmoid(), (random(2),))
    spec = DelegationSpec("EmittingBackend", [])
    manager = to_edge({"a": captured, "b": captured}).to_backend({"a": spec})
    assert "executorch_call_delegate" in targets(manager.exported_program("a"))
    assert targets(manager.exported_program("b")) == ["aten.sigmoid.default"]


def _two_layers() -> ExportedProgram:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 5)).eval()
    return export(model, (random(2, 3),))


def test_an_operator_that_a_backend_wants_whole_reaches_it_whole() -> None:
    partitioner = TagCalls(_named("aten.linear.default"), [torch.ops.aten.linear.default])
    manager = to_edge_transform_and_lower(_two_layers(), partitioner=partitioner)
    names = targets(manager.exported_program())
    assert names.count("executorch_call_delegate") == 2
    assert not any(name.startswith(("aten.linear", "aten.addmm")) for name in names)
    program = manager.to_executorch(PORTABLE).executorch_program
    assert {blob.data for blob in program.backend_delegate_data} == {b"aten.linear.default"}


def test_a_filter_keeps_single_calls_whole() -> None:
    def is_wide(node: torch.fx.Node) -> bool:
        return tuple(node.meta["val"].shape) == (2, 5)

    partitioner = TagCalls(_named("aten.linear.default"), [torch.ops.aten.linear.default], is_wide)
    names = targets(to_edge_transform_and_lower(_two_layers(), partitioner=[partitioner]).exported_program())
    assert names.count("executorch_call_delegate") == 1
    assert names.count("aten.addmm.default") == 1


class _Views(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.permute(1, 0).transpose(0, 1) + 1


def test_single_calls_that_return_views_are_decomposed_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kept = [torch.ops.aten.permute.default, torch.ops.aten.transpose.int]
    partitioner = TagCalls(_named("aten.permute_copy.default"), kept, lambda node: True)
    manager = to_edge_transform_and_lower(export(_Views(), (random(2, 3),)), partitioner=partitioner)
    # permute is core and gets to the backend whole all the same.
    assert targets(manager.exported_program()).count("executorch_call_delegate") >= 1
    told = [r.getMessage() for r in caplog.records if r.name == "pteron.exir.decompose.preserved_operators"]
    assert len(told) == 1
    assert told[0].startswith("aten.transpose.int returns a view of an argument")


def test_a_damaged_delegate_call_is_found() -> None:
    from pteron.errors import VerificationError
    from pteron.exir.edge.stages import EDGE
    from pteron.exir.edge.verify import verify

    program = (
        edge_of(torch.sin, random(2)).to_backend(DelegationSpec("EmittingBackend", [])).exported_program()
    )
    verify(program, EDGE)
    call = next(node for node in program.graph.nodes if str(node.target) == "executorch_call_delegate")
    call.meta["val"] = None
    with pytest.raises(VerificationError, match="must hold the outputs of the delegate"):
        verify(program, EDGE)
    call.args = (program.graph_module.graph.output_node().args[0][0],)
    with pytest.raises(VerificationError):
        verify(program, EDGE)


class _Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(x)
        return self.count + x


def test_calls_of_a_lowered_module_with_state_share_one_delegate() -> None:
    x = torch.ones(2)
    edge = to_edge(export(_Counter(), (x,))).exported_program()
    lowered = to_backend("EmittingBackend", edge, [])

    class Caller(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lowered = lowered

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.lowered(self.lowered(x)) * 2

    plan = to_edge(export(Caller(), (x,))).to_executorch(PORTABLE).executorch_program.execution_plan[0]
    steps = [step.instr_args for step in plan.chains[0].instructions]
    assert [step.delegate_index for step in steps if isinstance(step, schema.DelegateCall)] == [0, 0]
    assert len(plan.delegates) == 1


def _two_of_one_blob() -> ExecutorchProgramManager | Any:
    """Two lowered modules whose blobs are equal and whose named data are not."""

    class Differing(BackendDetails):
        @staticmethod
        def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
            store = NamedDataStore()
            store.add_named_data("shared", b"same", alignment=64)
            store.add_named_data("own", str(edge_program.graph).encode(), alignment=32)
            return PreprocessResult(b"blob", data_store_output=store.get_named_data_store_output())

    a = to_backend("Differing", edge_of(torch.sin, random(2)).exported_program(), [])
    b = to_backend("Differing", edge_of(torch.cos, random(2)).exported_program(), [])
    return edge_of(lambda x: a(b(x)), random(2))


def test_different_data_under_one_key_are_stored_for_each_delegate() -> None:
    data = _two_of_one_blob().to_executorch().executorch_program.named_data
    found = {entry.key: entry for entry in data if not entry.key.startswith(("pteron.i", "pteron.debug"))}
    assert list(found) == ["shared", "pteron.delegate.own@forward/0", "pteron.delegate.own@forward/1"]
    assert found["shared"].alignment == 64
    assert found["pteron.delegate.own@forward/0"].alignment == 32
    assert b"cos" in bytes(found["pteron.delegate.own@forward/0"].data)
    assert b"sin" in bytes(found["pteron.delegate.own@forward/1"].data)


def test_different_data_under_one_key_are_refused_for_executorch() -> None:
    with pytest.raises(ExportError, match="named data 'own' is given twice"):
        _two_of_one_blob().to_executorch(PORTABLE)
