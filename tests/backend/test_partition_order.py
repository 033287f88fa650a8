"""In which order the operators of a partition stand, which is the order of a backend's blob."""

from __future__ import annotations

import random

import torch
from torch.export import ExportedProgram
from torch.fx.passes.tools_common import legalize_graph

from pteron.exir.backend.backend_api import to_backend
from pteron.exir.backend.partition_order import breadth_first
from pteron.exir.backend.partitioner import PartitionResult
from tests.backend.lowering_cases import RecordingBackend, TagBy, edge, names


class Branches(torch.nn.Module):
    """Three chains of two operators each, one after the other, and what joins them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = x.sin().cos()
        second = x.exp().neg()
        third = x.tanh().abs()
        return first + second + third


def test_operators_of_the_first_partition_stand_in_the_order_of_the_model() -> None:
    to_backend(edge(Branches(), torch.ones(2)), TagBy(lambda node: "all" if _computes(node) else None))
    assert names(RecordingBackend.programs[0])[:6] == [
        *("aten.sin.default", "aten.cos.default", "aten.exp.default"),
        *("aten.neg.default", "aten.tanh.default", "aten.abs.default"),
    ]


def test_later_partitions_stand_in_the_order_of_a_graph_sorted_breadth_first() -> None:
    class EndFirst(TagBy):
        """Partitions are cut in the order of the table of tags."""

        def partition(self, exported_program: ExportedProgram) -> PartitionResult:
            result = super().partition(exported_program)
            result.partition_tags = {tag: result.partition_tags[tag] for tag in ("end", "chains")}
            return result

    def tag(node: torch.fx.Node) -> str | None:
        if not _computes(node):
            return None
        return "end" if "add" in str(node.target) else "chains"

    to_backend(edge(Branches(), torch.ones(2)), EndFirst(tag))
    (chains,) = [names(each) for each in RecordingBackend.programs if "aten.sin.default" in names(each)]
    assert chains == [
        *("aten.sin.default", "aten.exp.default", "aten.tanh.default"),
        *("aten.cos.default", "aten.neg.default", "aten.abs.default"),
    ]


def test_the_order_is_that_of_pytorch() -> None:
    for seed in range(40):
        choose = random.Random(seed)
        graph = torch.fx.Graph()
        nodes = [graph.placeholder(f"x{index}") for index in range(choose.randint(1, 3))]
        for _ in range(20):
            target = choose.choice([torch.add, torch.sub, torch.ops.aten.scalar_tensor.default])
            nodes.append(graph.call_function(target, tuple(choose.choices(nodes, k=2))))
        graph.output(tuple(nodes[-3:]))
        found = breadth_first(graph, {node: index for index, node in enumerate(graph.nodes)})
        ours = sorted(found, key=found.__getitem__)
        sorted_by_torch = legalize_graph(torch.fx.GraphModule(torch.nn.Module(), graph)).graph
        assert [node.name for node in ours] == [node.name for node in sorted_by_torch.nodes]


def _computes(node: torch.fx.Node) -> bool:
    return node.op == "call_function"
