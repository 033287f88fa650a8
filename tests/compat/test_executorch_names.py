"""What the counterparts of ExecuTorch's names do, beyond being there."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
import torch
from pteron.compat.executorch.exir._serialize._cord import Cord, FileBackedData
from pteron.compat.executorch.exir._serialize._dataclass import _DataclassEncoder, _json_to_dataclass
from pteron.compat.executorch.exir._serialize._program import deserialize_pte_binary, serialize_pte_binary
from pteron.compat.executorch.exir.dialects._ops import bind_pattern_to_op, ops
from pteron.compat.executorch.exir.emit import emit_program
from pteron.compat.executorch.exir.error import ExportError, InternalError
from pteron.compat.executorch.exir.operator.convert import output_to_aliased_input_map, to_out_variant
from pteron.compat.executorch.exir.pass_base import ExportPass, PassResult
from pteron.compat.executorch.exir.passes import (
    ConstPropPass,
    ScalarToTensorPass,
    SpecPropPass,
    ToOutVarPass,
    dead_code_elimination_pass,
    make_alloc_node,
)
from pteron.compat.executorch.exir.passes.constant_prop_pass import constant_prop_pass
from pteron.compat.executorch.exir.passes.cse_pass import CSEPass
from pteron.compat.executorch.exir.passes.memory_format_ops_pass import DimOrderOpsRevertPass
from pteron.compat.executorch.exir.passes.reinplace import reinplace_pass
from pteron.compat.executorch.exir.program._program import _transform, lift_constant_tensor_pass
from pteron.compat.executorch.exir.sym_util import eval_shape, eval_shape_upper_bound
from pteron.compat.executorch.exir.tensor import TensorSpec, make_tensor_value
from pteron.compat.executorch.exir.verification.verifier import EXIREdgeDialectVerifier
from torch.library import Library

from pteron.exir import to_edge
from pteron.exir.edge.memory_nodes import alloc

ATEN = ops.edge.aten


class Arithmetic(torch.nn.Module):
    """Equal calls, a constant expression, a product."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) + torch.sin(x) + self.weight.t().contiguous().t() * 2


def edge(module: torch.nn.Module | None = None) -> torch.export.ExportedProgram:
    """An edge program."""
    program = torch.export.export(module or Arithmetic(), (torch.randn(2, 3),))
    return to_edge(program).exported_program()


def calls(module: torch.fx.GraphModule, target: object) -> int:
    """How often a graph calls an operator."""
    return sum(node.target is target for node in module.graph.nodes)


def test_a_spec_has_both_spellings() -> None:
    spec = TensorSpec.from_tensor(torch.zeros(1, 2, 3, 4).to(memory_format=torch.channels_last))
    assert (spec.scalar_type, spec.shape, spec.dim_order) == (torch.float32, [1, 2, 3, 4], (0, 2, 3, 1))
    assert (spec.nbytes(), spec.allocated_memory, spec.realign(64)) == (96, 96, 128)
    spec.mem_id, spec.mem_offset, spec.const = 2, 32, True
    assert (spec.memory_id, spec.memory_offset, spec.is_constant) == (2, 32, True)
    shared = TensorSpec(torch.float32, [24])
    shared.base = spec
    assert (shared.mem_id, shared.mem_offset) == (2, 32)
    value = make_tensor_value(1, None, spec)
    assert (value.scalar_type, value.sizes, value.dim_order) == (6, [1, 2, 3, 4], [0, 2, 3, 1])


def test_extents_that_vary_have_a_bound_and_a_value() -> None:
    dimensions = {"x": {0: torch.export.Dim("n", min=2, max=9)}}
    program = torch.export.export(
        torch.nn.ReLU(), (torch.zeros(4, 3),), dynamic_shapes=({0: dimensions["x"][0]},)
    )
    shape = program.graph_module.graph.output_node().args[0][0].meta["val"].shape
    assert (eval_shape(shape), eval_shape_upper_bound(shape)) == ([4, 3], [9, 3])
    spec = TensorSpec(torch.float32, shape)
    assert spec.shape == [9, 3]
    assert spec.is_dynamic_shape_tensor


def test_passes_over_an_edge_graph() -> None:
    program = edge()
    module = program.graph_module
    assert calls(module, ATEN.sin.default) == 2
    CSEPass()(module)
    dead_code_elimination_pass(module)
    assert calls(module, ATEN.sin.default) == 1
    folded = constant_prop_pass(program)
    x = torch.randn(2, 3)
    assert torch.allclose(folded.module()(x), Arithmetic()(x))
    assert calls(folded.graph_module, ATEN.mul.Tensor) == 0


def test_random_numbers_stay_random() -> None:
    class Noise(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.rand(2, 3)

    folded = constant_prop_pass(edge(Noise()))
    assert calls(folded.graph_module, ATEN.rand.default) == 1


def test_numbers_and_constants() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch._subclasses.FakeTensorMode().from_tensor(torch.zeros(2))
    total = graph.call_function(torch.ops.aten.add.Tensor, (x, 2.0))
    total.meta["val"] = x.meta["val"]
    graph.output((total,))
    made = ScalarToTensorPass()(torch.fx.GraphModule(torch.nn.Module(), graph))
    assert made.modified
    (attribute,) = [node for node in made.graph_module.graph.nodes if node.op == "get_attr"]
    assert getattr(made.graph_module, attribute.target).item() == 2.0
    kept = ConstPropPass()(made.graph_module).graph_module
    assert calls(kept, torch.ops.aten.add.Tensor) == 1


def test_out_variants_have_allocations() -> None:
    module = edge().graph_module
    SpecPropPass()(module)
    ToOutVarPass()(module)
    allocations = [node for node in module.graph.nodes if node.target is alloc]
    written = [node for node in module.graph.nodes if "out" in node.kwargs]
    assert len(allocations) == len(written) > 3
    assert isinstance(module.graph.output_node().meta["spec"][0], TensorSpec)
    with pytest.raises(InternalError, match="needs FakeTensor val"):
        make_alloc_node(module, None, None)


def test_dimension_orders_are_reverted() -> None:
    class Cast(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.to(torch.float64)

    module = DimOrderOpsRevertPass()(edge(Cast()).graph_module).graph_module
    (cast,) = [node for node in module.graph.nodes if node.target is ATEN._to_copy.default]
    assert cast.kwargs["memory_format"] is torch.contiguous_format


def test_calls_are_written_in_place_where_nobody_reads_on() -> None:
    class Chain(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.sin(x)
            return torch.relu(y) + torch.relu(x)

    program = reinplace_pass(edge(Chain()), ops_to_inplace=[ATEN.relu.default])
    # `y` is read by its relu alone; `x` is the caller's.
    assert calls(program.graph_module, ATEN.relu_.default) == 1
    assert calls(program.graph_module, ATEN.relu.default) == 1
    x = torch.randn(2, 3)
    assert torch.allclose(program.module()(x), torch.relu(torch.sin(x)) + torch.relu(x))
    with pytest.raises(ValueError, match="its name does not start with aten::relu_"):
        reinplace_pass(edge(Chain()), inplace_overrides={ATEN.relu.default: ATEN.sin_.default})


def test_a_pass_may_hold_the_program_that_it_changes() -> None:
    program = edge()

    class AddsAConstant(ExportPass):
        def call(self, graph_module: torch.fx.GraphModule) -> PassResult:
            assert graph_module is program.graph_module
            graph_module.register_buffer("five", torch.full((3,), 5.0))
            last = graph_module.graph.output_node()
            result = last.args[0][0]
            with graph_module.graph.inserting_before(last):
                five = graph_module.graph.get_attr("five")
                five.meta["val"] = result.meta["val"].fake_mode.from_tensor(graph_module.five)
                total = graph_module.graph.call_function(ATEN.add.Tensor, (result, five))
            total.meta["val"] = result.meta["val"]
            last.args = ((total,),)
            return PassResult(graph_module, True)

    made = lift_constant_tensor_pass(_transform(program, AddsAConstant()))
    x = torch.randn(2, 3)
    assert torch.allclose(made.module()(x), Arithmetic()(x) + 5)
    assert made.graph_signature.user_outputs == (made.graph_module.graph.output_node().args[0][0].name,)
    with pytest.raises(AssertionError, match="not list or Verifier"):
        _transform(program, [AddsAConstant()])


def test_a_pattern_stands_behind_a_backend_operator() -> None:
    library = Library("pteron_test_patterns", "DEF")

    @bind_pattern_to_op(library, "twice.tensor(Tensor x) -> Tensor")
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x + x

    op = ops.backend.pteron_test_patterns.twice.tensor
    assert op(torch.ones(2)).tolist() == [2, 2]
    assert op._equivalent_callable is twice
    with pytest.raises(RuntimeError, match="op library does not belong to backend ops"):
        ops.backend.aten.sin
    assert ATEN.__rshift__.Scalar(torch.tensor([4]), 1).tolist() == [2]


def test_operators_and_their_schemas() -> None:
    assert to_out_variant(torch.ops.aten.add.Tensor) == (torch.ops.aten.add.out, ("out",))
    assert output_to_aliased_input_map(torch.ops.aten.add_.Tensor._schema) == {0: 0}


def test_the_verifier_refuses_pytorch_s_overloads() -> None:
    verifier = EXIREdgeDialectVerifier()
    assert verifier.is_valid(edge().graph_module)
    captured = torch.export.export(torch.nn.ReLU(), (torch.zeros(2),)).graph_module
    assert not verifier.is_valid(captured)


def test_a_program_file_comes_back_as_its_objects() -> None:
    manager = to_edge(torch.export.export(Arithmetic(), (torch.randn(2, 3),))).to_executorch()
    read = deserialize_pte_binary(manager.buffer)
    (wanted,), (plan,) = manager.executorch_program.execution_plan, read.program.execution_plan
    assert (plan.values, plan.operators, plan.inputs, plan.outputs) == (
        wanted.values,
        wanted.operators,
        wanted.inputs,
        wanted.outputs,
    )
    assert [each.instr_args for each in plan.chains[0].instructions] == [
        each.instr_args for each in wanted.chains[0].instructions
    ]
    assert "pteron.interface" in read.named_data.pte_data
    again = deserialize_pte_binary(bytes(serialize_pte_binary(read)))
    assert again.program.execution_plan == read.program.execution_plan
    with pytest.raises(ValueError, match=r"damaged|identifier"):
        deserialize_pte_binary(manager.buffer[:200])
    emitted = emit_program({"forward": manager.exported_program()})
    assert emitted.program.execution_plan[0].values == wanted.values
    with pytest.raises(ExportError, match="No memory is planned"):
        emit_program(edge())


def test_parts_of_files_are_not_read_before_they_are_written(tmp_path) -> None:
    (tmp_path / "weights").write_bytes(b"abcdef")
    with FileBackedData.move_from(str(tmp_path / "weights")) as data:
        assert not (tmp_path / "weights").exists()
        assert (len(data), data.prefix(2), data.to_bytes()) == (6, b"ab", b"abcdef")
        cord = Cord(b"12")
        cord.append(data)
        with (tmp_path / "out").open("wb") as out:
            cord.write_to_file(out)
        assert (tmp_path / "out").read_bytes() == bytes(cord) == b"12abcdef"
    assert [each.name for each in tmp_path.iterdir()] == ["out"]


@dataclass
class Leaf:
    """A member of a union."""

    data: bytes


@dataclass
class Other:
    """Another one."""

    names: list[str]


@dataclass
class Tree:
    """A field whose annotation is a union in quotes, and one that may be missing."""

    value: "Leaf | Other"  # noqa: UP037 -- the quotes are what the encoder looks at
    count: int | None = None


def test_dataclasses_through_json() -> None:
    text = json.dumps(Tree(Leaf(b"\x01\x02")), cls=_DataclassEncoder)
    assert json.loads(text) == {"value": {"data": [1, 2]}, "value_type": "Leaf", "count": None}
    assert _json_to_dataclass(json.loads(text), Tree) == Tree(Leaf(b"\x01\x02"))
    with pytest.raises(TypeError, match="Received no value for field: names"):
        _json_to_dataclass({"value": {}, "value_type": "Other"}, Tree)
