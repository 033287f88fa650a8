"""Helpers for partitioners of quantised programs, and the operators they name."""

from __future__ import annotations

import copy

import torch
from torch.fx.passes.utils.source_matcher_utils import SourcePartition

from pteron.exir.backend import quantized_partitions
from pteron.exir.edge.exir_ops import exir_ops
from pteron.exir.passes.duplicate_dequantize import DuplicateDequantNodePass
from tests.backend.lowering_cases import Function, edge, names, operators
from tests.support.own_interpreter import output_of

X = torch.randn(4)
QUANTIZE = "quantized_decomposed.quantize_per_tensor.default"
DEQUANTIZE = "quantized_decomposed.dequantize_per_tensor.default"


def program(function):
    """An edge program over `quantize`, `dequantize` and `function`."""

    def quantize(x):
        return torch.ops.quantized_decomposed.quantize_per_tensor(x, 0.1, 0, -128, 127, torch.int8)

    def dequantize(x):
        return torch.ops.quantized_decomposed.dequantize_per_tensor(x, 0.1, 0, -128, 127, torch.int8)

    return edge(Function(lambda x: function(x, quantize, dequantize)), X)


def test_operators_are_known_once_exir_is_imported() -> None:
    seen = output_of(
        "import logging, sys, torch, pteron.exir\n"
        "logging.disable()\n"
        "print('torchao' in sys.modules)\n"
        "print(torch.ops.quantized_decomposed.dequantize_per_tensor.tensor)\n"
        "print(hasattr(torch.ops.quantized_decomposed, 'no_such_operator'))\n"
        "from pteron.exir.edge.exir_ops import exir_ops\n"
        "print(exir_ops.edge.quantized_decomposed.embedding_4bit.dtype)\n"
        "print(torch.ops.torchao.quantize_affine.default)\n"
    )
    assert seen.split("\n")[:5] == [
        "False",
        "quantized_decomposed.dequantize_per_tensor.tensor",
        "False",
        "quantized_decomposed.embedding_4bit.dtype",
        "torchao.quantize_affine.default",
    ]


def test_embeddings_compute_what_their_tables_hold() -> None:
    # In a process of its own: torch takes one definition of a name, and the peer's package has one too.
    assert (
        output_of("import tests.backend.test_quantized_partitions as t; t.check_embeddings()").strip() == "ok"
    )


def check_embeddings() -> None:
    """Compares each width with the table written out."""
    look = torch.ops.quantized_decomposed
    scales, points = torch.tensor([[0.5, 2.0], [0.25, 1.0]]), torch.tensor([[1.0, 0.0], [0.0, -1.0]])
    indices = torch.tensor([1, 0, 1])
    packed = {
        "byte": (torch.tensor([[1, -2, 3, 4], [5, 6, -7, 8]], dtype=torch.int8), (-128, 127)),
        "4bit": (torch.tensor([[0x9A, 0x0F], [0x71, 0x88]], dtype=torch.uint8), (-8, 7)),
        "2bit": (torch.tensor([[0b11_10_01_00], [0b00_01_10_11]], dtype=torch.uint8), (-2, 1)),
    }
    tables = {
        "byte": [[1, -2, 3, 4], [5, 6, -7, 8]],
        "4bit": [[1, 2, -8, 7], [-1, -7, 0, 0]],
        "2bit": [[-2, -1, 0, 1], [1, 0, -1, -2]],
    }
    for width, (weight, limits) in packed.items():
        table = torch.tensor(tables[width], dtype=torch.float32).reshape(2, 2, 2)
        expected = ((table - points[..., None]) * scales[..., None]).reshape(2, 4)[indices]
        operator = getattr(look, f"embedding_{width}")
        torch.testing.assert_close(operator.default(weight, scales, points, *limits, indices), expected)
        half = operator.dtype(weight, scales, points, *limits, indices, dtype=torch.float16)
        torch.testing.assert_close(half, expected.half())
        out = torch.empty(0)
        assert operator.out(weight, scales, points, *limits, indices, out=out) is out
        torch.testing.assert_close(out, expected)
    print("ok")


def test_names_with_underscores_are_operators() -> None:
    assert exir_ops.edge.aten.__rshift__.Scalar.__name__ == "aten.__rshift__.Scalar"
    assert copy.deepcopy(exir_ops.edge.aten.add) is exir_ops.edge.aten.add
    assert not hasattr(exir_ops.edge.aten, "__no_such_operator__")


def test_nodes_are_the_same_up_to_the_inputs() -> None:
    left, right = (edge(Function(lambda x: torch.sin(x) * torch.cos(x)), X) for _ in range(2))
    other = edge(Function(lambda x: torch.cos(x) * torch.sin(x)), X)
    assert quantized_partitions.is_same_node(left.graph.nodes, right.graph.nodes)
    assert not quantized_partitions.is_same_node(left.graph.nodes, other.graph.nodes)
    assert not quantized_partitions.is_same_node(list(left.graph.nodes)[:2], right.graph.nodes)


def test_the_outer_quantisation_is_removed() -> None:
    found = program(lambda x, q, d: d(q(torch.sin(d(q(x))))))
    quantized_partitions.remove_first_quant_and_last_dequant(found.graph_module)
    assert names(found) == [DEQUANTIZE, "aten.sin.default", QUANTIZE]


def test_a_quantised_partition_becomes_one_operator() -> None:
    found = program(lambda x, q, d: d(q(torch.sin(d(q(x))))))
    [sine] = [node for node in found.graph.nodes if operators("sin")(node)]
    partition = SourcePartition([sine], torch.sin, [], [sine], [])
    call, before, after = quantized_partitions.replace_quantized_partition_with_op(
        found.graph_module, partition, torch.ops.aten.neg.default
    )
    assert names(found) == [QUANTIZE, "neg.default", DEQUANTIZE]
    assert [node.target.__name__ for node in (*before, *after)] == [DEQUANTIZE, QUANTIZE]
    assert call.target is torch.ops.aten.neg.default
    assert [name for name, _ in found.graph_module.named_children()] == []


def test_readers_of_a_dequantised_value_get_one_each() -> None:
    def shared(x, q, d):
        value = d(q(x))
        return torch.sin(value) + torch.cos(value)

    found = program(shared)
    result = DuplicateDequantNodePass()(found.graph_module)
    assert result.modified
    assert names(found).count(DEQUANTIZE) == 2
    assert not DuplicateDequantNodePass()(found.graph_module).modified
    torch.testing.assert_close(found.module()(X), program(shared).module()(X))
