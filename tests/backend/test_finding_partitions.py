"""Ready-made partitioners, tags for constants, and support checks."""

from __future__ import annotations

import logging

import pytest
import torch
from pteron.compat.executorch.exir.backend.utils import _maybe_duplicate_constant_nodes
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner

from pteron.exir.backend.backend_api import to_backend
from pteron.exir.backend.canonical_partitioners.all_node_partitioner import AllNodePartitioner
from pteron.exir.backend.canonical_partitioners.config_partitioner import (
    ConfigerationBasedPartitioner,
    PartitionerConfig,
)
from pteron.exir.backend.canonical_partitioners.group_partitioner import GroupBasedPartitioner
from pteron.exir.backend.canonical_partitioners.pattern_op_partitioner import (
    ChosenNodes,
    generate_grouped_partitions_from_list_of_nodes,
    generate_partitions_from_list_of_nodes,
    generate_pattern_op_partitions,
)
from pteron.exir.backend.constant_duplication import duplicate_constant_node
from pteron.exir.backend.constant_tagging import tag_constant_data, tag_mutated_buffer
from pteron.exir.backend.delegated_graph import is_shape_dynamic
from pteron.exir.backend.graph_identity import is_identical_graph
from pteron.exir.backend.operator_support import DontPartition, DontPartitionModule, DontPartitionName
from pteron.exir.backend.partition_report import WhyNoPartition, WhyNoPartitionReporter
from pteron.exir.backend.partitioner import DelegationSpec
from pteron.exir.backend.program_copy import deep_copy
from pteron.exir.edge.exir_ops import exir_ops
from tests.backend.lowering_cases import (
    Counter,
    Function,
    RecordingBackend,
    delegate_calls,
    edge,
    names,
)


def found(partitions):
    return sorted(sorted(node.name for node in partition.nodes) for partition in partitions)


def by_name(program):
    return {node.name: node for node in program.graph.nodes}


def test_patterns_are_found_wherever_they_occur() -> None:
    program = edge(
        Function(lambda x: torch.neg(torch.cos(torch.sin(torch.cos(torch.sin(x)))))), torch.ones(1)
    )
    pattern = edge(Function(lambda x: torch.cos(torch.sin(x))), torch.ones(1)).graph
    partitions = generate_pattern_op_partitions(program.graph_module, patterns=[pattern])
    assert found(partitions) == [
        ["aten_cos_default", "aten_cos_default_1", "aten_sin_default", "aten_sin_default_1"]
    ]


def test_listed_nodes_are_merged_where_they_touch() -> None:
    program = edge(Function(lambda x: torch.sin(torch.neg(torch.cos(torch.sin(x))))), torch.ones(1))
    nodes = by_name(program)
    chosen = [[nodes["aten_sin_default"]], [nodes["aten_cos_default"]], [nodes["aten_sin_default_1"]]]
    partitions = generate_partitions_from_list_of_nodes(program.graph_module, chosen)
    assert found(partitions) == [["aten_cos_default", "aten_sin_default"], ["aten_sin_default_1"]]


def test_nothing_to_look_for_is_refused() -> None:
    program = edge(Function(torch.sin), torch.ones(1))
    for generate in (generate_partitions_from_list_of_nodes, generate_grouped_partitions_from_list_of_nodes):
        with pytest.raises(AssertionError, match="Did not give a pattern"):
            generate(program.graph_module)


def test_groups_stay_whole_and_never_make_a_cycle() -> None:
    def model(x, y):
        a, b = torch.sin(x), torch.sin(y)
        return torch.cos(a), torch.neg(torch.exp(a)), torch.cos(b)

    program = edge(Function(model), torch.ones(1), torch.ones(1))
    nodes = by_name(program)
    group = [nodes["aten_sin_default"], nodes["aten_cos_default_1"]]
    whole = generate_grouped_partitions_from_list_of_nodes(program.graph_module, [group])
    assert found(whole) == [["aten_cos_default_1", "aten_sin_default"]]
    # exp lies between sin and neg, so the three cannot be one partition without it.
    apart = generate_grouped_partitions_from_list_of_nodes(
        program.graph_module, [[nodes["aten_sin_default"], nodes["aten_neg_default"]]]
    )
    assert found(apart) == [["aten_neg_default"], ["aten_sin_default"]]


def test_merged_groups_never_depend_on_each_other() -> None:
    torch.manual_seed(0)

    def model(x):
        values = [x]
        for step in range(24):
            operation = (torch.sin, torch.cos, torch.neg)[step % 3]
            values.append(operation(values[(step * 7) % len(values)] + values[(step * 5) % len(values)]))
        return sum(values)

    program = edge(Function(model), torch.ones(1))
    chosen = [n for n in program.graph.nodes if n.op == "call_function" and "neg" not in n.name]
    proposer = GroupBasedPartitioner(
        program.graph_module, ChosenNodes(chosen), allows_single_node_partition=True
    )
    partitions = proposer.propose_partitions()
    assert sorted(n.name for p in partitions for n in p.nodes) == sorted(n.name for n in chosen)
    assert len(partitions) < len(chosen)
    from tests.backend.lowering_cases import TagBy

    tags = {node.name: str(p.id) for p in partitions for node in p.nodes}
    lowered = to_backend(program, TagBy(lambda node: tags.get(node.name)))
    x = torch.randn(1)
    torch.testing.assert_close(lowered.module()(x), program.module()(x))


def test_single_node_partitions_are_dropped_on_request() -> None:
    program = edge(Function(torch.sin), torch.ones(1))
    chosen = ChosenNodes(n for n in program.graph.nodes if n.op == "call_function")
    assert GroupBasedPartitioner(program.graph_module, chosen).propose_partitions() == []
    allowed = GroupBasedPartitioner(
        program.graph_module, chosen, allowed_single_node_partition_ops=["aten.sin.default"]
    )
    assert len(allowed.propose_partitions()) == 1


def test_partitions_without_groups_are_those_of_pytorch() -> None:
    def branches(x: torch.Tensor) -> torch.Tensor:
        left, right = torch.sin(x), torch.cos(x)
        both = left.relu() + right
        return (both.sin() - left) * torch.cos(right.exp() + both) + both.tan()

    program = edge(Function(branches), torch.ones(2))
    chosen = ChosenNodes(
        node
        for node in program.graph.nodes
        if any(name in str(node.target) for name in ("sin", "cos", "add", "sub", "tan"))
    )
    ours, theirs = (
        kind(program.graph_module, chosen, allows_single_node_partition=True).propose_partitions()
        for kind in (GroupBasedPartitioner, CapabilityBasedPartitioner)
    )
    found = {frozenset(node.name for node in partition.nodes) for partition in ours}
    assert found == {frozenset(node.name for node in partition.nodes) for partition in theirs}
    assert 1 < len(found) < len(list(program.graph.nodes))


def test_a_node_is_in_one_group_at_most() -> None:
    program = edge(Function(lambda x: torch.sin(x) + 1), torch.ones(1))
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    with pytest.raises(ValueError, match="exists in multiple groups"):
        GroupBasedPartitioner(program.graph_module, ChosenNodes(nodes), node_groups=[nodes, nodes[:1]])


def test_all_nodes_go_to_one_backend() -> None:
    lowered = to_backend(
        edge(torch.nn.Linear(2, 2), torch.ones(1, 2)), AllNodePartitioner("RecordingBackend", [])
    )
    assert names(lowered) == ["executorch_call_delegate", "getitem"]


class AddmmConfig(PartitionerConfig):
    target_name = "addmm.default"

    def check_constraints(self, node, ep):
        return True

    def get_original_aten(self):
        return torch.ops.aten.linear.default

    def get_partition(self, node, ep):
        return [node, *(a for a in node.all_input_nodes if a.op == "placeholder" and a.name.startswith("p_"))]


def test_configurations_say_what_is_taken_along() -> None:
    partitioner = ConfigerationBasedPartitioner(DelegationSpec("RecordingBackend", []), [AddmmConfig()])
    program = edge(torch.nn.Linear(2, 3), torch.ones(1, 2))
    lowered = to_backend(program, partitioner)
    assert names(RecordingBackend.programs[0]) == ["aten.addmm.default"]
    assert set(RecordingBackend.programs[0].state_dict) == {"bias"}
    assert set(lowered.state_dict) == {"weight"}
    operators, keep = partitioner.ops_to_not_decompose(program)
    assert operators == [torch.ops.aten.linear.default]
    assert [n.name for n in program.graph.nodes if keep(n)] == ["aten_addmm_default"]


def test_two_configurations_for_one_operator_are_refused() -> None:
    with pytest.raises(RuntimeError, match=r"have the same target_name: addmm\.default"):
        ConfigerationBasedPartitioner(DelegationSpec("RecordingBackend", []), [AddmmConfig(), AddmmConfig()])


def test_constants_get_the_tag_of_their_readers() -> None:
    program = edge(Counter(), torch.ones(2))
    nodes = by_name(program)
    for node in program.graph.nodes:
        if node.op == "call_function":
            node.meta["delegation_tag"] = "t"
    tag_constant_data(program)
    assert "delegation_tag" not in nodes["b_count"].meta
    constants = {
        n.name
        for n in program.graph.nodes
        if n.op == "placeholder" and n.name not in ("b_count", "x") and n.meta.get("delegation_tag") == "t"
    }
    assert len(constants) == sum(n.op == "placeholder" for n in program.graph.nodes) - 2
    tag_mutated_buffer(program)
    assert nodes["b_count"].meta["delegation_tag"] == "t"
    assert "delegation_tag" not in nodes["x"].meta


def test_constant_of_two_partitions_gets_the_smallest_tag() -> None:
    program = edge(torch.nn.PReLU(2), torch.ones(1, 2))
    constant = next(n for n in program.graph.nodes if n.name == "p_weight")
    for index, user in enumerate(constant.users):
        user.meta["delegation_tag"] = f"t{9 - index}"
    tag_constant_data(program)
    assert constant.meta["delegation_tag"] == min(u.meta["delegation_tag"] for u in constant.users)


def test_constant_can_be_copied_for_every_reader() -> None:
    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(2))

        def forward(self, x):
            return torch.sin(x * self.weight) * self.weight

    program = edge(Twice(), torch.ones(2))
    copies = duplicate_constant_node(program, "p_weight")
    assert copies == {"p_weight_copy_0"}
    assert [spec.target for spec in program.graph_signature.input_specs] == ["weight", "weight", None]
    torch.testing.assert_close(program.module()(torch.ones(2)), Twice()(torch.ones(2)))


def test_constants_of_one_partition_are_copied_for_its_other_readers() -> None:
    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(2))

        def forward(self, x):
            return torch.sin(x * self.weight) + self.weight

    program = edge(Twice(), torch.ones(2))
    nodes = by_name(program)
    nodes["p_weight"].meta["delegation_tag"] = nodes["aten_mul_tensor"].meta["delegation_tag"] = "t10"
    nodes["aten_add_tensor"].meta["delegation_tag"] = "t11"
    _maybe_duplicate_constant_nodes(program, "t11")
    assert list(by_name(program)) == list(nodes)
    _maybe_duplicate_constant_nodes(program, "t10")
    nodes = by_name(program)
    tags = {name: nodes[name].meta["delegation_tag"] for name in ("p_weight", "p_weight_copy_0")}
    assert tags == {"p_weight": "t10", "p_weight_copy_0": "t11"}
    assert nodes["aten_add_tensor"].args[1] is nodes["p_weight_copy_0"]
    nodes["p_weight"].meta["no_copy"] = True
    nodes["aten_mul_tensor"].meta["delegation_tag"] = "t12"
    with pytest.raises(RuntimeError, match=r"tagged with \(t10\) but has user \(aten_mul_tensor\)"):
        _maybe_duplicate_constant_nodes(program, "t10")


def test_identical_graphs() -> None:
    program = edge(Function(torch.sin), torch.ones(1))
    assert is_identical_graph(program.graph_module, deep_copy(program).graph_module)
    other = edge(Function(torch.cos), torch.ones(1))
    assert not is_identical_graph(program.graph_module, other.graph_module)


def test_dynamic_shapes_are_seen() -> None:
    dim = torch.export.Dim("n", min=2, max=8)
    program = edge(Function(torch.sin), torch.ones(4), dynamic_shapes=(({0: dim},),))
    assert is_shape_dynamic(by_name(program)["aten_sin_default"])
    assert not is_shape_dynamic(by_name(edge(Function(torch.sin), torch.ones(4)))["aten_sin_default"])


class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.ReLU()
        self.second = torch.nn.Sigmoid()

    def forward(self, x):
        return self.second(self.first(x))


@pytest.mark.parametrize(
    ("check", "rejected"),
    [
        (DontPartition(exir_ops.edge.aten.relu.default), ["aten_relu_default"]),
        (DontPartition("aten.sigmoid", exact=False), ["aten_sigmoid_default"]),
        (DontPartitionName("relu", exact=False), ["aten_relu_default"]),
        (DontPartitionName("relu"), []),
        (DontPartitionModule(module_name="Sigmoid"), ["aten_sigmoid_default"]),
        (DontPartitionModule(module_name="torch.nn.modules.activation.ReLU"), ["aten_relu_default"]),
        (DontPartitionModule(instance_name="first"), ["aten_relu_default"]),
    ],
)
def test_checks_keep_nodes_out(check, rejected) -> None:
    program = edge(Layers(), torch.ones(1))
    kept = [n.name for n in program.graph.nodes if n.op == "call_function" and check.is_node_supported({}, n)]
    assert [n.name for n in check.rejected_nodes()] == rejected
    assert check.has_rejected_node() == bool(rejected)
    assert len(kept) + check.num_rejected() == 2


def test_rejections_are_reported_once_with_their_reason(caplog) -> None:
    program = edge(Layers(), torch.ones(1))
    reporter = WhyNoPartitionReporter()
    assert reporter.get_table_report() == "No nodes rejected."
    check = reporter.wrap_check(DontPartitionName("aten_relu_default"), "relu stays")
    for node in program.graph.nodes:
        check.is_node_supported({}, node)
    reporter.report_reject(by_name(program)["aten_relu_default"], "second reason")
    table = reporter.get_table_report()
    assert "aten_relu_default" in table
    assert "relu stays" in table
    assert "second reason" not in table
    why = WhyNoPartition(logging.getLogger("test"))
    with caplog.at_level(logging.DEBUG, logger="test"):
        why(by_name(program)["aten_relu_default"], "it is a test")
    assert "Node aten_relu_default was not partitioned because it is a test" in caplog.text


def test_no_delegates_where_nothing_is_tagged() -> None:
    program = edge(Function(torch.sin), torch.ones(1))
    assert delegate_calls(program) == []
