"""Several methods that are lowered together."""

from __future__ import annotations

import pytest
import torch
from torch.export import export

from pteron.backends.demo import AddMulPartitionerDemo
from pteron.exir import to_edge
from pteron.exir.backend.backend_api import MethodProgramsPartitionerSpec, to_backend
from pteron.exir.backend.backend_details import BackendDetails, PreprocessError, PreprocessResult
from pteron.exir.backend.compile_spec import CompileSpec
from pteron.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from tests.backend.lowering_cases import (
    Function,
    RecordingBackend,
    TagBy,
    delegate_calls,
    edge,
    names,
    operators,
)


class Sharing(BackendDetails):
    """Counts calls and refuses to compile programs one by one."""

    calls: list[tuple[dict, dict]] = []  # noqa: RUF012
    drop = 0

    @staticmethod
    def preprocess(edge_program, compile_specs):
        raise AssertionError("preprocess must not be called")

    @classmethod
    def preprocess_multimethod(cls, edge_programs, compile_specs):
        Sharing.calls.append((edge_programs, compile_specs))
        results = {
            method: [PreprocessResult(f"{method} {index}".encode()) for index, _ in enumerate(programs)]
            for method, programs in edge_programs.items()
        }
        return {method: listed[: len(listed) - Sharing.drop] for method, listed in results.items()}


@pytest.fixture(autouse=True)
def _empty():
    Sharing.calls.clear()
    Sharing.drop = 0


def programs():
    return {
        "encode": edge(Function(lambda x: torch.sin(torch.cos(x))), torch.ones(2)),
        "decode": edge(Function(lambda x: torch.cos(torch.sin(x)) + x), torch.ones(2)),
    }


def test_methods_without_a_partitioner_come_back_as_they_were() -> None:
    methods = programs()
    lowered = to_backend(MethodProgramsPartitionerSpec(methods, {"encode": TagBy(operators("sin"))}))
    assert list(lowered) == ["encode", "decode"]
    assert lowered["decode"] is methods["decode"]
    assert len(delegate_calls(lowered["encode"])) == 1


def test_one_multimethod_call_for_each_backend_with_parallel_tables() -> None:
    def each(node):
        return node.name if node.op == "call_function" and "add" not in node.name else None

    partitioners = {name: TagBy(each, backend="Sharing") for name in ("encode", "decode")}
    lowered = to_backend(MethodProgramsPartitionerSpec(programs(), partitioners))
    assert len(Sharing.calls) == 1
    given, specs = Sharing.calls[0]
    assert {m: [names(p) for p in listed] for m, listed in given.items()} == {
        "encode": [["aten.cos.default"], ["aten.sin.default"]],
        "decode": [["aten.sin.default"], ["aten.cos.default"]],
    }
    assert specs == {"encode": [[], []], "decode": [[], []]}
    blobs = {
        name: [
            getattr(program.graph_module, call.args[0].target).processed_bytes
            for call in delegate_calls(program)
        ]
        for name, program in lowered.items()
    }
    assert blobs == {"encode": [b"encode 0", b"encode 1"], "decode": [b"decode 0", b"decode 1"]}


def test_default_calls_preprocess_for_each_partition() -> None:
    partitioners = {name: TagBy(operators("sin")) for name in ("encode", "decode")}
    to_backend(MethodProgramsPartitionerSpec(programs(), partitioners))
    assert [names(p) for p in RecordingBackend.programs] == [["aten.sin.default"]] * 2


def test_another_number_of_results_is_refused() -> None:
    Sharing.drop = 1
    with pytest.raises(PreprocessError, match="expected one result for each partition"):
        to_backend(
            MethodProgramsPartitionerSpec(programs(), {"encode": TagBy(operators("sin"), backend="Sharing")})
        )


def test_partitioner_for_a_missing_method_is_refused() -> None:
    with pytest.raises(AssertionError, match="Partitioner for method missing"):
        to_backend(MethodProgramsPartitionerSpec(programs(), {"missing": TagBy(operators("sin"))}))


def test_one_program_with_a_partitioner_calls_preprocess_once_per_tag() -> None:
    def each(node):
        return node.name if node.op == "call_function" else None

    to_backend(programs()["decode"], TagBy(each))
    assert len(RecordingBackend.programs) == 3
    with pytest.raises(RuntimeError, match="preprocess must not be called"):
        to_backend(programs()["decode"], TagBy(each, backend="Sharing"))


def test_partitions_of_branches_come_last() -> None:
    class Deep(Partitioner):
        def partition(self, exported_program):
            from pteron.exir.edge.control_flow import graph_modules

            tags = {}
            for depth, module in enumerate(reversed(list(graph_modules(exported_program.graph_module)))):
                for node in module.graph.nodes:
                    if node.op == "call_function" and (
                        "sin" in str(node.target) or "neg" in str(node.target)
                    ):
                        node.meta["delegation_tag"] = f"t{depth}"
                        tags[f"t{depth}"] = DelegationSpec("Sharing", [])
            return PartitionResult(exported_program, tags)

    def model(x):
        return torch.neg(torch.cond(x.sum() > 0, lambda v: torch.sin(v), lambda v: torch.cos(v), (x,)))

    to_backend(
        MethodProgramsPartitionerSpec({"forward": edge(Function(model), torch.ones(2))}, {"forward": Deep()})
    )
    given = Sharing.calls[0][0]["forward"]
    assert [names(p) for p in given] == [["aten.neg.default"], ["aten.sin.default"]]


SPEC = DelegationSpec("Sharing", [CompileSpec("max_value", bytes([4]))])


def manager():
    models = {"encode": torch.nn.Linear(2, 3), "decode": torch.nn.Linear(3, 2)}
    return to_edge(
        {name: export(model, (torch.ones(1, model.in_features),)) for name, model in models.items()}
    )


def test_delegation_spec_sends_every_method_whole_in_one_call() -> None:
    lowered = manager().to_backend(SPEC)
    assert len(Sharing.calls) == 1
    assert set(Sharing.calls[0][0]) == {"encode", "decode"}
    assert Sharing.calls[0][1] == {"encode": [SPEC.compile_specs], "decode": [SPEC.compile_specs]}
    for name in ("encode", "decode"):
        program = lowered.exported_program(name)
        assert names(program) == ["executorch_call_delegate", "getitem"]
        assert program.state_dict == {}


def test_dict_lowers_the_methods_it_names() -> None:
    lowered = manager().to_backend({"encode": SPEC})
    assert len(delegate_calls(lowered.exported_program("encode"))) == 1
    assert delegate_calls(lowered.exported_program("decode")) == []
    mixed = manager().to_backend({"encode": SPEC, "decode": AddMulPartitionerDemo()})
    assert len(delegate_calls(mixed.exported_program("encode"))) == 1


def test_delegation_spec_is_accepted_for_one_program() -> None:
    program = edge(torch.nn.Linear(2, 3), torch.ones(1, 2))
    lowered = to_backend(program, DelegationSpec("RecordingBackend", []))
    assert names(lowered) == ["executorch_call_delegate", "getitem"]
    x = torch.randn(1, 2)
    torch.testing.assert_close(lowered.module()(x), program.module()(x))


def test_partitioner_class_is_instantiated() -> None:
    lowered = to_backend(edge(Function(torch.add), torch.ones(1), torch.ones(1)), AddMulPartitionerDemo)
    assert len(delegate_calls(lowered)) == 1


def test_something_else_than_a_partitioner_is_refused() -> None:
    with pytest.raises(TypeError, match="expected a Partitioner, a Partitioner class or a DelegationSpec"):
        to_backend(edge(Function(torch.sin), torch.ones(1)), "RecordingBackend")


def test_manager_is_refused_with_the_way_out() -> None:
    with pytest.raises(TypeError, match=r"pass its \.exported_program\(\)"):
        to_backend("RecordingBackend", manager(), [])


def test_delegation_spec_is_accepted_on_the_way_to_edge() -> None:
    from pteron.exir import to_edge_transform_and_lower

    programs = {"forward": export(torch.nn.Linear(2, 3), (torch.ones(1, 2),))}
    for choice in ([SPEC], SPEC, {"forward": [SPEC]}):
        Sharing.calls.clear()
        lowered = to_edge_transform_and_lower(programs, partitioner=choice)
        assert len(Sharing.calls) == 1
        assert names(lowered.exported_program()) == ["executorch_call_delegate", "getitem"]
