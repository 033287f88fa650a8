"""From a captured program to the edge dialect."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.utils._pytree import tree_leaves

from pteron.errors import ExportError, VerificationError
from pteron.exir import EdgeCompileConfig, to_edge
from pteron.exir.backend.program_copy import copy_with_own_state
from pteron.exir.edge.edge_op_overload import EdgeOpOverload
from tests.exir.small_models import CASES, Case, Function, edge_of, edge_program_of, node_of, random, targets


@pytest.mark.parametrize("name", CASES)
def test_the_edge_program_computes_what_the_model_computes(name: str) -> None:
    case: Case = CASES[name]
    program = edge_program_of(name).exported_program()
    assert program.dialect == "EDGE"
    with torch.no_grad():
        expected = case.model()(*case.args, **case.kwargs)
        # A module made of a program updates the buffers of that program, which other tests read.
        got = copy_with_own_state(program).module()(*copy.deepcopy(case.args), **case.kwargs)
    for left, right in zip(tree_leaves(got), tree_leaves(expected), strict=True):
        torch.testing.assert_close(left, right)


@pytest.mark.parametrize("name", CASES)
def test_only_edge_operators_are_left(name: str) -> None:
    program = edge_program_of(name).exported_program()
    for node in program.graph.nodes:
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
            assert node.target in (torch.ops.aten.sym_size.int,)
        if isinstance(node.target, EdgeOpOverload):
            assert not node.target.schema.is_mutable


def test_the_captured_program_is_left_as_it_was() -> None:
    captured = CASES["everything"].export()
    before = str(captured.graph), {name: value.clone() for name, value in captured.state_dict.items()}
    to_edge(captured)
    assert str(captured.graph) == before[0]
    for name, value in captured.state_dict.items():
        assert torch.equal(value, before[1][name])


def test_a_transposed_weight_becomes_contiguous_only_in_the_edge_program() -> None:
    class Transposed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(random(5, 3).t())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.weight

    captured = torch.export.export(Transposed(), (random(2, 3),))
    program = to_edge(captured).exported_program()
    assert program.state_dict["weight"].is_contiguous()
    assert isinstance(program.state_dict["weight"], torch.nn.Parameter)
    assert not captured.state_dict["weight"].is_contiguous()
    assert torch.equal(program.state_dict["weight"], captured.state_dict["weight"])


def test_views_become_copies_with_contiguous_results() -> None:
    program = edge_of(lambda x: x.permute(1, 0).relu(), random(2, 3)).exported_program()
    assert targets(program) == ["aten.permute_copy.default", "aten.relu.default"]
    assert node_of(program, "aten.relu.default").meta["val"].is_contiguous()


def test_a_copy_that_changes_nothing_goes_unless_it_is_returned() -> None:
    inner = edge_of(lambda x: x.permute(1, 0).contiguous().relu(), random(2, 3)).exported_program()
    assert targets(inner) == ["aten.permute_copy.default", "aten.relu.default"]
    returned = edge_of(lambda x: x.clone(), random(2, 3)).exported_program()
    assert targets(returned) == ["dim_order_ops._clone_dim_order.default"]


@pytest.mark.parametrize(
    ("function", "dtype", "expected"),
    [
        (lambda x: x + 1, torch.float32, torch.float32),
        (lambda x: x + 1, torch.int64, torch.int64),
        (lambda x: x + 1, torch.float64, torch.float64),
        (lambda x: x + 1.5, torch.int64, torch.float32),
        (lambda x: x / 2, torch.int64, torch.float32),
        (lambda x: x * 0.5, torch.float16, torch.float16),
    ],
)
def test_a_scalar_becomes_a_constant_of_the_dtype_it_is_used_in(function, dtype, expected) -> None:
    program = edge_of(function, torch.ones(3, dtype=dtype)).exported_program()
    constants = list(program.constants.values())
    assert [constant.dtype for constant in constants] == [expected]
    assert constants[0].shape == ()


def test_a_symbolic_number_becomes_a_tensor_where_the_schema_wants_one() -> None:
    dim = torch.export.Dim("n", min=2, max=8)
    program = edge_of(
        lambda x: x + x.shape[0], random(3, 2), dynamic_shapes=(({0: dim},),)
    ).exported_program()
    assert targets(program) == ["sym_size.int", "aten.scalar_tensor.default", "aten.add.Tensor"]
    assert node_of(program, "aten.scalar_tensor.default").kwargs == {"dtype": torch.float32}


def test_operands_of_different_dtype_are_cast() -> None:
    program = edge_of(lambda x, y: x + y, torch.ones(3), torch.ones(3, dtype=torch.int32)).exported_program()
    cast = node_of(program, "dim_order_ops._to_dim_order_copy.default")
    assert cast.kwargs == {"dtype": torch.float32, "dim_order": [0]}
    assert cast.args[0].name.endswith("_1")


def test_memory_formats_become_dimension_orders() -> None:
    def channels_last(x: torch.Tensor) -> torch.Tensor:
        return x.to(memory_format=torch.channels_last).relu()

    program = edge_of(channels_last, random(1, 3, 4, 5)).exported_program()
    copied = next(node for node in program.graph.nodes if node.op == "call_function")
    assert copied.target.namespace == "dim_order_ops"
    assert copied.kwargs["dim_order"] == [0, 2, 3, 1]
    assert tuple(node_of(program, "aten.relu.default").meta["val"].dim_order()) == (0, 2, 3, 1)


def test_skipping_dimension_orders_keeps_pytorchs_operators() -> None:
    captured = torch.export.export(Function(lambda x: x.double()), (random(2),))
    program = to_edge(captured, compile_config=EdgeCompileConfig(_skip_dim_order=True)).exported_program()
    assert targets(program) == ["aten._to_copy.default"]


def test_an_operator_that_core_aten_lacks_is_decomposed_where_pytorch_knows_how() -> None:
    program = edge_of(lambda x: torch.linalg.vector_norm(x, 2, (1,)), random(2, 3)).exported_program()
    assert "aten.linalg_vector_norm.default" not in targets(program)


def test_preserved_operators_stay_whole() -> None:
    captured = torch.export.export(torch.nn.Linear(3, 2), (random(2, 3),))
    config = EdgeCompileConfig(preserve_ops=[torch.ops.aten.linear.default])
    assert targets(to_edge(captured, compile_config=config).exported_program()) == ["aten.linear.default"]


def test_an_operator_outside_core_aten_is_refused_with_its_source_line() -> None:
    captured = torch.export.export(Function(lambda x: torch.special.airy_ai(x)), (random(3, 3),))
    with pytest.raises(
        VerificationError, match=r"aten\.special_airy_ai\.default is not a core ATen operator"
    ) as caught:
        to_edge(captured)
    assert caught.value.method == "forward"
    assert caught.value.source_line is not None
    assert "small_models.py:" in caught.value.source_line


def test_the_edge_dialect_is_not_entered_twice() -> None:
    program = edge_of(torch.sin, random(2)).exported_program()
    with pytest.raises(ExportError, match="in the edge dialect already"):
        to_edge(program)


def test_something_else_than_an_exported_program_is_refused() -> None:
    with pytest.raises(TypeError, match=r"method 'forward'.*ExportedProgram.*Linear"):
        to_edge({"forward": torch.nn.Linear(2, 2)})  # type: ignore[dict-item]
    with pytest.raises(ExportError, match="at least one program"):
        to_edge({})


def test_upsampling_by_a_factor_keeps_a_dynamic_batch() -> None:
    class Upsample(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.interpolate(x, scale_factor=2.0)

    batch = torch.export.Dim("batch", min=1, max=8)
    program = torch.export.export(Upsample(), (torch.ones(2, 3, 4, 4),), dynamic_shapes=({0: batch},))
    shape = to_edge(program).exported_program().graph.output_node().args[0][0].meta["val"].shape
    assert isinstance(shape[0], torch.SymInt)
    assert tuple(shape[1:]) == (3, 8, 8)
    assert str(shape[0].node.expr).startswith("s")
