"""Edge operators and their out variants."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from pteron.errors import MissingOutVariantError
from pteron.exir.edge.edge_op_overload import edge_op_of, emitted_name
from pteron.exir.edge.exir_ops import exir_ops
from pteron.exir.edge.out_variant import out_argument_names, out_variant


def test_attribute_access_gives_the_operator() -> None:
    sin = exir_ops.edge.aten.sin.default
    assert sin.__name__ == "aten.sin.default"
    assert sin.name() == "aten::sin"
    assert exir_ops.edge.aten.add.Tensor.name() == "aten::add.Tensor"
    assert [argument.name for argument in exir_ops.edge.aten.add.Tensor.schema.arguments] == [
        "self",
        "other",
        "alpha",
    ]


def test_an_operator_is_one_object() -> None:
    add = exir_ops.edge.aten.add.Tensor
    assert add is edge_op_of(torch.ops.aten.add.Tensor)
    assert copy.copy(add) is copy.deepcopy(add) is pickle.loads(pickle.dumps(add)) is add
    assert add != exir_ops.edge.aten.add.Scalar


def test_calling_it_computes() -> None:
    x = torch.tensor([0.0, 1.0])
    assert torch.equal(exir_ops.edge.aten.sin.default(x), torch.sin(x))


def test_a_misspelt_operator_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError):
        exir_ops.edge.aten.sinn.default
    with pytest.raises(AttributeError, match=r"aten\.sin has no overload 'Tensor'"):
        exir_ops.edge.aten.sin.Tensor


def test_dimension_order_operators_are_shown_under_their_public_namespace() -> None:
    to_copy = exir_ops.edge.dim_order_ops._to_dim_order_copy.default
    assert to_copy.__name__ == "dim_order_ops._to_dim_order_copy.default"
    assert emitted_name(to_copy.to_out_variant()) == ("dim_order_ops::_to_dim_order_copy", "out")
    assert edge_op_of(to_copy.aten_overload) is to_copy


def test_a_dimension_order_operator_makes_that_order() -> None:
    x = torch.arange(2.0 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    y = exir_ops.edge.dim_order_ops._to_dim_order_copy.default(x, dtype=torch.float64, dim_order=[0, 2, 3, 1])
    assert y.dtype is torch.float64
    assert tuple(y.dim_order()) == (0, 2, 3, 1)
    assert torch.equal(y, x.double())


@pytest.mark.parametrize(
    ("functional", "out"),
    [
        ("add.Tensor", "add.out"),
        ("add.Scalar", "add.Scalar_out"),
        ("sum.dim_IntList", "sum.IntList_out"),
        ("mean.dim", "mean.out"),
        ("max.dim", "max.dim_max"),
        ("topk.default", "topk.values"),
        ("view_copy.default", "view_copy.out"),
        ("split_with_sizes_copy.default", "split_with_sizes_copy.out"),
        ("_to_copy.default", "_to_copy.out"),
        ("full.default", "full.out"),
        ("arange.start_step", "arange.start_out"),
        ("native_layer_norm.default", "native_layer_norm.out"),
        ("index.Tensor", "index.Tensor_out"),
        ("where.self", "where.self_out"),
        ("scalar_tensor.default", "scalar_tensor.out"),
        ("convolution.default", "convolution.out"),
    ],
)
def test_the_out_variant_takes_the_same_arguments(functional: str, out: str) -> None:
    name, overload = functional.split(".")
    expected_name, expected_overload = out.split(".")
    found = out_variant(getattr(getattr(torch.ops.aten, name), overload))
    assert found is getattr(getattr(torch.ops.aten, expected_name), expected_overload)
    assert len(out_argument_names(found)) >= 1


def test_an_operator_without_out_variant_says_so() -> None:
    with pytest.raises(MissingOutVariantError, match=r"aten\.sym_size\.int has no out variant") as caught:
        out_variant(torch.ops.aten.sym_size.int)
    assert caught.value.operator == "aten.sym_size.int"
