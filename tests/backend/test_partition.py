"""Flow 3: the rules of partitioning, one test each."""

from __future__ import annotations

import logging

import pytest
import torch
from torch._export.verifier import SpecViolationError
from torch._subclasses import FakeTensor
from torch.export import export
from torch.export.graph_signature import OutputKind

from pteron.backends.demo import AddMulPartitionerDemo, AllNodesPartitionerDemo
from pteron.exir import to_edge
from pteron.exir.backend import partition_calls
from pteron.exir.backend.backend_api import disable_validation, to_backend, validation_disabled
from pteron.exir.backend.delegated_graph import (
    format_delegated_graph,
    get_delegated_payload,
    get_delegates,
    get_non_lowered_nodes,
)
from pteron.exir.backend.delegation_report import delegation_report
from pteron.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from tests.backend.lowering_cases import (
    Counter,
    Function,
    RecordingBackend,
    SixSteps,
    TagBy,
    delegate_calls,
    edge,
    names,
    operators,
    same,
)


def test_add_and_mm_go_to_two_delegates_and_the_rest_stays() -> None:
    x, y = torch.rand(1, 3) + 1, torch.rand(1, 3) + 1
    manager = to_edge(export(SixSteps(), (x, y)))
    for lowered in (
        to_backend(manager.exported_program(), AddMulPartitionerDemo()),
        manager.to_backend(AddMulPartitionerDemo()).exported_program(),
    ):
        report = delegation_report(lowered)
        assert [d.operators for d in report.delegates] == [{"aten.add.Tensor": 1}] * 2
        assert report.remaining == {"aten.mul.Tensor": 2, "aten.sub.Tensor": 1, "aten.div.Tensor": 1}
        same(manager.exported_program(), lowered, x, y)


def test_each_tag_becomes_one_call() -> None:
    lowered = to_backend(
        edge(SixSteps(), torch.ones(1), torch.ones(1)), TagBy(operators("mul", "sub", "div"))
    )
    assert len(delegate_calls(lowered)) == 1
    assert names(RecordingBackend.programs[0]) == [
        "aten.mul.Tensor",
        "aten.sub.Tensor",
        "aten.div.Tensor",
        "aten.mul.Tensor",
    ]


class Meddler(Partitioner):
    def __init__(self, meddle):
        super().__init__()
        self.meddle = meddle

    def partition(self, exported_program):
        self.meddle(exported_program.graph)
        exported_program.graph_module.recompile()
        return PartitionResult(exported_program, {})


def _change_target(graph):
    node = next(n for n in graph.nodes if n.op == "call_function")
    node.target = torch.ops.aten.cos.default


def _change_keyword(graph):
    node = next(n for n in graph.nodes if n.op == "call_function")
    node.kwargs = {"alpha": 3}


def _add_node(graph):
    with graph.inserting_before(graph.output_node()):
        node = next(n for n in graph.nodes if n.op == "call_function")
        graph.node_copy(node, lambda n: n)


@pytest.mark.parametrize(
    ("meddle", "difference"),
    [
        (_change_target, "aten.add.Tensor"),
        (_change_keyword, "kwargs of node"),
        (_add_node, "became|was added"),
    ],
)
def test_changed_graph_is_refused_naming_the_difference(meddle, difference) -> None:
    program = edge(Function(torch.add), torch.ones(1), torch.ones(1))
    with pytest.raises(AssertionError, match="should not modify the graph module") as caught:
        to_backend(program, Meddler(meddle))
    assert caught.match(difference)


def test_changed_graph_is_accepted_with_validation_off(monkeypatch) -> None:
    program = edge(Function(torch.add), torch.ones(1), torch.ones(1))
    with validation_disabled():
        lowered = to_backend(program, Meddler(_change_keyword))
    torch.testing.assert_close(lowered.module()(torch.ones(1), torch.ones(1)), torch.tensor([4.0]))
    with pytest.raises(AssertionError):
        to_backend(program, Meddler(_change_keyword))
    monkeypatch.setattr(partition_calls, "_is_validation_enabled", True)
    disable_validation()
    to_backend(program, Meddler(_change_keyword))


def test_missing_table_of_tags_is_refused() -> None:
    class NoTags(Partitioner):
        def partition(self, exported_program):
            return PartitionResult(exported_program, None)

    with pytest.raises(AssertionError, match="needs a `partition_tags` field"):
        to_backend(edge(Function(torch.sin), torch.ones(1)), NoTags())


def test_tag_without_nodes_is_skipped() -> None:
    class Empty(Partitioner):
        def partition(self, exported_program):
            return PartitionResult(exported_program, {"t": DelegationSpec("RecordingBackend", [])})

    lowered = to_backend(edge(Function(torch.sin), torch.ones(1)), Empty())
    assert names(lowered) == ["aten.sin.default"]
    assert RecordingBackend.programs == []


def test_node_with_an_unnamed_tag_stays_and_is_reported() -> None:
    lowered = to_backend(
        edge(Function(torch.sin), torch.ones(1)), TagBy(operators("sin"), named=lambda tag: False)
    )
    assert names(lowered) == ["aten.sin.default"]
    report = delegation_report(lowered)
    assert report.unnamed_tags == {"aten_sin_default": "t"}
    assert report.left[0].reason == "TagBy: its tag 't' is not in partition_tags"


def test_tagged_output_is_refused() -> None:
    with pytest.raises(RuntimeError, match="output node output should not be tagged"):
        to_backend(
            edge(Function(torch.sin), torch.ones(1)), TagBy(lambda n: "t" if n.op == "output" else None)
        )


def test_tagged_user_input_is_refused() -> None:
    def choose(node):
        return "t" if node.op == "placeholder" else None

    program = edge(SixSteps(), torch.ones(1), torch.ones(1))
    with pytest.raises(
        RuntimeError,
        match="placeholder node for non-params, non-buffer, and non-tensor constants should not be tagged: x",
    ):
        to_backend(program, TagBy(choose))


def test_input_mutation_stays_with_the_outer_program() -> None:
    class Writes(torch.nn.Module):
        def forward(self, x):
            x.add_(1)
            return torch.sin(x)

    program = edge(Writes(), torch.ones(2))
    lowered = to_backend(program, DelegationSpec("RecordingBackend", []))
    kinds = [spec.kind for spec in lowered.graph_signature.output_specs]
    assert kinds == [OutputKind.USER_INPUT_MUTATION, OutputKind.USER_OUTPUT]
    left, right = torch.ones(2), torch.ones(2)
    torch.testing.assert_close(lowered.module()(left), program.module()(right))
    torch.testing.assert_close(left, right)


def test_tags_are_removed() -> None:
    lowered = to_backend(edge(SixSteps(), torch.ones(1), torch.ones(1)), AddMulPartitionerDemo())
    assert not any("delegation_tag" in node.meta for node in lowered.graph.nodes)


def test_call_carries_output_metadata_and_a_fresh_debug_handle() -> None:
    program = edge(SixSteps(), torch.ones(1), torch.ones(1))
    highest = max(n.meta.get("debug_handle") or 0 for n in program.graph.nodes)
    calls = delegate_calls(to_backend(program, AddMulPartitionerDemo()))
    handles = [call.meta["debug_handle"] for call in calls]
    assert sorted(handles) == [highest + 1, highest + 2]
    assert all(tuple(call.meta["val"][0].shape) == (1,) for call in calls)


def test_result_is_a_valid_program_and_the_given_one_is_unchanged() -> None:
    program = edge(SixSteps(), torch.ones(1), torch.ones(1))
    before = str(program.graph)
    lowered = to_backend(program, AddMulPartitionerDemo())
    lowered.validate()
    assert str(program.graph) == before
    assert not any("delegation_tag" in node.meta for node in program.graph.nodes)


def test_partitioner_sees_fake_tensors_and_weights_are_not_copied() -> None:
    program = edge(torch.nn.Linear(2, 3), torch.ones(1, 2))
    partitioner = TagBy(operators("sin"))
    lowered = to_backend(program, partitioner)
    assert partitioner.seen is not None
    assert all(lowered.state_dict[name] is tensor for name, tensor in program.state_dict.items())

    class Looks(Partitioner):
        def partition(self, exported_program):
            self.kinds = [type(tensor) for tensor in exported_program.state_dict.values()]
            return PartitionResult(exported_program, {})

    looks = Looks()
    to_backend(program, looks)
    assert looks.kinds == [FakeTensor, FakeTensor]


def test_deep_copy_with_a_warning_where_the_fake_copy_fails(monkeypatch, caplog) -> None:
    from pteron.exir.backend import program_copy

    def fail(program):
        raise AssertionError("no fake mode")

    monkeypatch.setattr(program_copy, "get_fake_program", fail)
    program = edge(torch.nn.Linear(2, 3), torch.ones(1, 2))
    partitioner = TagBy(operators("addmm"))
    with caplog.at_level(logging.WARNING):
        lowered = to_backend(program, partitioner)
    assert "no fake copy of the program" in caplog.text
    same(program, lowered, torch.randn(1, 2))


def test_partition_that_depends_on_itself_is_refused_before_anything_is_lowered() -> None:
    def choose(node):
        return "t" if node.op == "call_function" and "cos" not in node.name else None

    program = edge(Function(lambda x: torch.sin(torch.cos(torch.sin(x)))), torch.ones(1))
    with pytest.raises(AssertionError, match="found dependency cycles") as caught:
        to_backend(program, TagBy(choose))
    assert "aten_cos_default" in str(caught.value)
    assert RecordingBackend.programs == []


def test_partitions_that_depend_on_each_other_are_refused() -> None:
    def choose(node):
        return {
            "aten_sin_default": "a",
            "aten_cos_default": "b",
            "aten_tan_default": "b",
            "aten_neg_default": "a",
        }.get(node.name)

    program = edge(
        Function(lambda x, y: (torch.cos(torch.sin(x)), torch.neg(torch.tan(y)))),
        torch.ones(1),
        torch.ones(1),
    )
    with pytest.raises(AssertionError, match="found dependency cycles"):
        to_backend(program, TagBy(choose))


def test_unknown_backend_in_a_tag_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="Backend Nobody was not found"):
        to_backend(edge(Function(torch.sin), torch.ones(1)), TagBy(operators("sin"), backend="Nobody"))


def test_items_of_a_list_go_with_the_operator_that_makes_it() -> None:
    program = edge(Function(lambda x: torch.sin(torch.split(x, 2)[1])), torch.ones(4))
    lowered = to_backend(program, TagBy(operators("split")))
    assert all(isinstance(value, torch.Tensor) for value in delegate_calls(lowered)[0].meta["val"])
    same(program, lowered, torch.randn(4))


def test_numbers_do_not_leave_a_delegate() -> None:
    dim = torch.export.Dim("n", min=2, max=8)
    program = edge(
        Function(lambda x: torch.sin(x) * x.shape[0]), torch.ones(4), dynamic_shapes=(({0: dim},),)
    )
    lowered = to_backend(program, TagBy(operators("sym_size", "sin")))
    call = delegate_calls(lowered)[0]
    assert all(isinstance(value, torch.Tensor) for value in call.meta["val"])
    same(program, lowered, torch.randn(5))


def test_partitions_in_any_order_leave_a_sorted_graph() -> None:
    def model(x):
        a, b = torch.sin(x), torch.cos(x)
        c = torch.neg(a)
        return torch.sin(b) + c

    program = edge(Function(model), torch.ones(3))
    lowered = to_backend(program, TagBy(operators("sin")))
    lowered.graph.lint()  # raises where a node stands before what it reads
    assert len(delegate_calls(lowered)) == 1
    same(program, lowered, torch.randn(3))


def test_delegates_of_several_partitioners_stand_side_by_side() -> None:
    program = edge(SixSteps(), torch.ones(1), torch.ones(1))
    lowered = to_backend(to_backend(program, AddMulPartitionerDemo()), TagBy(operators("mul", "sub", "div")))
    assert len(get_delegates(lowered.graph)) == 3
    assert get_non_lowered_nodes(lowered.graph) == []
    payload = get_delegated_payload(lowered.graph_module)
    assert sorted(backend for backend, _, _ in payload.values()) == [
        "BackendWithCompilerDemo",
        "BackendWithCompilerDemo",
        "RecordingBackend",
    ]
    assert "backend_id: RecordingBackend" in format_delegated_graph(lowered.graph_module)
    same(program, lowered, torch.ones(1), torch.ones(1))


def test_lowered_modules_nest_through_partitions() -> None:
    program = edge(SixSteps(), torch.ones(1), torch.ones(1))
    inner = to_backend(program, AddMulPartitionerDemo())
    outer = to_backend(inner, AllNodesPartitionerDemo())
    assert len(delegate_calls(outer)) == 1
    assert len(get_delegates(outer.graph)) == 1
    nested = outer.graph_module.lowered_module_0.original_module
    assert len(delegate_calls(nested)) == 2
    same(program, outer, torch.ones(1), torch.ones(1))


def test_branches_of_control_flow_are_lowered() -> None:
    class Branches(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(2))

        def forward(self, x):
            return torch.cond(
                x.sum() > 0, lambda v: torch.sin(v + self.weight), lambda v: torch.cos(v) + self.weight, (x,)
            )

    class Deep(Partitioner):
        def partition(self, exported_program):
            from pteron.exir.edge.control_flow import graph_modules

            for module in graph_modules(exported_program.graph_module):
                for node in module.graph.nodes:
                    if node.op == "call_function" and "add" in str(node.target):
                        node.meta["delegation_tag"] = "t"
            return PartitionResult(exported_program, {"t": DelegationSpec("RecordingBackend", [])})

    program = edge(Branches(), torch.ones(2))
    lowered = to_backend(program, Deep())
    assert len(RecordingBackend.programs) == 2
    assert all(not p.state_dict for p in RecordingBackend.programs)
    assert set(lowered.state_dict) == {"weight"}
    for module in lowered.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            assert not any("delegation_tag" in node.meta for node in module.graph.nodes)
    for x in (torch.ones(2), -torch.ones(2)):
        same(program, lowered, x)


def test_delegate_that_only_updates_its_state_is_kept() -> None:
    class Counts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(2))

        def forward(self, x):
            self.count.add_(1)
            return torch.sin(x)

    manager = to_edge(export(Counts(), (torch.ones(2),))).to_backend(TagBy(operators("add", constants=True)))
    lowered = manager.exported_program()
    assert delegate_calls(lowered)[0].meta["val"] == []
    assert lowered.state_dict == {}
    plan = manager.to_executorch().executorch_program.execution_plan[0]
    kinds = [type(instruction.instr_args).__name__ for instruction in plan.chains[0].instructions]
    assert sorted(kinds) == ["DelegateCall", "KernelCall"]


def test_an_invalid_program_is_refused_before_it_is_partitioned() -> None:
    program = edge(Function(torch.sin), torch.ones(1))
    program.graph_signature.output_specs[0].arg.name = "nobody"
    partitioner = TagBy(operators("sin"))
    with pytest.raises(SpecViolationError, match="nobody"):
        to_backend(program, partitioner)
    assert partitioner.seen is None


class CountsTwice(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.counter = to_backend("RecordingBackend", edge(Counter(), torch.ones(2)), [])

    def forward(self, x):
        return self.counter(self.counter(x) * 2)


def test_calls_of_one_module_with_state_stay_together() -> None:
    program = edge(CountsTwice(), torch.ones(2))
    calls = [call.name for call in delegate_calls(program)]
    assert len(calls) == 2
    with pytest.raises(RuntimeError, match=rf"{calls[0]} and {calls[1]} call one lowered module that keeps"):
        to_backend(program, TagBy(lambda n: "t" if n.name == calls[1] else None))
    assert len(RecordingBackend.programs) == 1
    whole = to_backend(program, DelegationSpec("RecordingBackend", []))
    assert len(delegate_calls(whole)) == 1
    same(program, whole, torch.ones(2))


def test_delegation_spec_takes_the_buffers_that_the_graph_updates() -> None:
    program = edge(Counter(), torch.ones(2))
    lowered = to_backend(program, DelegationSpec("RecordingBackend", []))
    [inner] = RecordingBackend.programs
    assert list(inner.graph_signature.buffers_to_mutate.values()) == ["count"]
    assert names(lowered) == ["executorch_call_delegate", "getitem"]
    assert lowered.state_dict == {}
    same(program, lowered, torch.ones(2), calls=3)


def test_lists_cross_the_border_as_tensors() -> None:
    class Splits(torch.nn.Module):
        def forward(self, pair):
            left, right = torch.split(pair["x"], 2)
            return {"both": [torch.cat([right, left * pair["y"]])], "left": (left, {"right": right})}

    inputs = {"x": torch.randn(4), "y": torch.randn(2)}
    program = edge(Splits(), inputs)
    for tagged in (("split",), ("cat",), ("split", "cat", "mul"), ("mul",)):
        lowered = to_backend(program, TagBy(operators(*tagged)))
        same(program, lowered, inputs)
        for call in delegate_calls(lowered):
            assert all(isinstance(value, torch.Tensor) for value in call.meta["val"])


def test_operators_kept_whole_reach_their_delegate() -> None:
    from pteron.backends.demo import NonDecompTestPartitioner
    from pteron.exir import to_edge_transform_and_lower

    program = export(torch.nn.Linear(3, 3), (torch.ones(2, 3),))
    manager = to_edge_transform_and_lower(program, partitioner=[NonDecompTestPartitioner()])
    (delegate,) = manager.delegation_report()["forward"].delegates
    assert delegate.operators == {"aten.linear.default": 1}


def test_tensors_in_branches_and_shared_new_values_survive_the_first_decomposition() -> None:
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("a", torch.zeros(2))
            self.register_buffer("b", torch.zeros(2))

        def forward(self, x):
            self.a.copy_(x)
            self.b.copy_(x)
            added = torch.cond(x.sum() > 0, lambda v: v + torch.tensor([1.0, 2.0]), lambda v: v - 1, (x,))
            return added + self.a * self.b

    from pteron.exir import to_edge_transform_and_lower

    model, x = Model(), torch.tensor([3.0, 4.0])
    manager = to_edge_transform_and_lower(export(model, (x,)), partitioner=TagBy(operators("mul")))
    assert len(delegate_calls(manager.exported_program())) == 1
    torch.testing.assert_close(manager.exported_program().module()(x), model(x))
