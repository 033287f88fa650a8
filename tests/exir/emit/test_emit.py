"""Values and instructions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import pteron
from pteron.errors import ExportError
from pteron.exir import ExecutorchBackendConfig, schema, to_edge
from pteron.exir.emit.emit_program import emit_program
from pteron.exir.memory.memory_planning_pass import MemoryPlanningPass, memory_sizes
from pteron.exir.serialize.serialize_program import serialize_program
from tests.exir.small_models import CASES, PORTABLE, edge_program_of, emitted, random


def _plan(program: schema.Program) -> schema.ExecutionPlan:
    assert len(program.execution_plan) == 1
    return program.execution_plan[0]


def _calls(plan: schema.ExecutionPlan) -> list[tuple[str, list[int]]]:
    found = []
    for instruction in plan.chains[0].instructions:
        call = instruction.instr_args
        if not isinstance(call, schema.KernelCall):
            continue
        operator = plan.operators[call.op_index]
        found.append((f"{operator.name}.{operator.overload}".rstrip("."), call.args))
    return found


def _case(name: str) -> schema.ExecutionPlan:
    return _plan(edge_program_of(name).to_executorch(PORTABLE).executorch_program)


def test_an_operator_gets_every_argument_of_its_schema_then_its_result() -> None:
    plan = _plan(emitted(lambda x, y: torch.add(x, y, alpha=2), random(2), random(2)).executorch_program)
    [(name, args)] = _calls(plan)
    assert name == "aten::add.out"
    x, y, alpha, out, returned = args
    assert [x, y] == plan.inputs
    assert plan.values[alpha].val == schema.Int(2)
    assert out == returned == plan.outputs[0]


def test_defaults_become_values_of_their_own() -> None:
    plan = _plan(emitted(lambda x: x + x, random(2)).executorch_program)
    [(_, args)] = _calls(plan)
    assert plan.values[args[2]].val == schema.Int(1)


def test_several_results_are_returned_as_a_list() -> None:
    plan = _plan(emitted(lambda x: torch.topk(x, 2), random(5)).executorch_program)
    [(name, args)] = _calls(plan)
    assert name == "aten::topk.values"
    assert plan.values[args[-1]].val == schema.TensorList(args[-3:-1])
    assert plan.outputs == args[-3:-1]


def test_a_list_result_is_given_and_returned_as_a_list() -> None:
    plan = _plan(emitted(lambda x: torch.split(x, [1, 3]), random(4)).executorch_program)
    [(name, args)] = _calls(plan)
    assert name == "aten::split_with_sizes_copy.out"
    assert plan.values[args[-1]].val == plan.values[args[-2]].val == schema.TensorList(plan.outputs)


def test_lists_of_numbers_hold_indices_of_values() -> None:
    plan = _plan(emitted(lambda x: x.permute(1, 0), random(2, 3)).executorch_program)
    [(_, args)] = _calls(plan)
    dims = plan.values[args[1]].val
    assert isinstance(dims, schema.IntList)
    assert [plan.values[item].val for item in dims.items] == [schema.Int(1), schema.Int(0)]


def test_absent_tensors_in_a_list_are_minus_one() -> None:
    plan = _plan(emitted(lambda x, i: x[:, i], random(3, 4), torch.tensor([0, 2])).executorch_program)
    _, args = next(call for call in _calls(plan) if call[0] == "aten::index.Tensor_out")
    assert plan.values[args[1]].val == schema.OptionalTensorList([-1, plan.inputs[1]])


def test_optional_arguments_are_null_and_text_is_a_string() -> None:
    plan = _plan(emitted(lambda x: torch.nn.functional.gelu(x.clamp(min=0)), random(3)).executorch_program)
    calls = dict(_calls(plan))
    assert plan.values[calls["aten::clamp.out"][2]].val == schema.Null()
    assert plan.values[calls["aten::gelu.out"][1]].val == schema.String("none")


def test_floats_in_integer_clothes_are_stored_as_floats() -> None:
    plan = _plan(emitted(lambda x: torch.nn.functional.elu(x, 2), random(3)).executorch_program)
    [(_, args)] = _calls(plan)
    assert plan.values[args[1]].val in (schema.Int(2), schema.Double(2.0))  # alpha is a Scalar
    layer = _plan(
        emitted(lambda x: torch.nn.functional.layer_norm(x, (3,), eps=1), random(3)).executorch_program
    )
    [(_, args)] = _calls(layer)
    assert schema.Double(1.0) in [layer.values[index].val for index in args]


def test_a_static_view_costs_no_instruction_and_shares_its_place() -> None:
    plan = _plan(emitted(lambda x: x.sin().view(6).cos(), random(2, 3)).executorch_program)
    assert [name for name, _ in _calls(plan)] == ["aten::sin.out", "aten::cos.out"]
    sin, cos = (args for _, args in _calls(plan))
    base, view = plan.values[sin[-1]].val, plan.values[cos[0]].val
    assert isinstance(base, schema.Tensor)
    assert isinstance(view, schema.Tensor)
    assert base.allocation_info == view.allocation_info is not None
    assert (base.sizes, view.sizes) == ([2, 3], [6])


def test_a_view_of_a_constant_has_its_data() -> None:
    model = torch.nn.Module()
    model.weight = torch.nn.Parameter(random(2, 3))
    model.forward = lambda x: x + model.weight.view(6)
    program = to_edge(torch.export.export(model, (random(6),))).to_executorch(PORTABLE).executorch_program
    plan = _plan(program)
    [(_, args)] = _calls(plan)
    value = plan.values[args[1]].val
    assert isinstance(value, schema.Tensor)
    assert value.data_buffer_idx == 1
    assert value.sizes == [6]
    assert program.constant_buffer[1].storage == random(2, 3).numpy().tobytes()


def test_a_view_that_is_returned_is_a_copy() -> None:
    plan = _plan(emitted(lambda x: x.sin().view(6), random(2, 3)).executorch_program)
    assert [name for name, _ in _calls(plan)] == ["aten::sin.out", "aten::view_copy.out"]


def test_a_dynamic_view_is_an_instruction_with_symbolic_extents() -> None:
    dim = torch.export.Dim("n", min=2, max=8)
    dynamic = {"dynamic_shapes": (({0: dim},),)}
    plan = _plan(
        emitted(lambda x: x.sin().view(x.shape[0] * 2, 3).cos(), random(4, 6), **dynamic).executorch_program
    )
    calls = _calls(plan)
    names = [name for name, _ in calls]
    assert "executorch_prim::et_view.default" in names
    assert "aten::sym_size.int" in names
    _, size, out = dict(calls)["executorch_prim::et_view.default"]
    extents = plan.values[size].val
    assert isinstance(extents, schema.IntList)
    view = plan.values[out].val
    assert isinstance(view, schema.Tensor)
    assert view.sizes == [16, 3]
    assert view.shape_dynamism == schema.DYNAMIC_BOUND
    assert view.allocation_info is None
    assert view.data_buffer_idx == 0


def test_dynamic_tensors_state_upper_bounds() -> None:
    plan = _case("mlp_dynamic")
    value = plan.values[plan.inputs[0]].val
    assert isinstance(value, schema.Tensor)
    assert value.sizes == [16, 8]
    assert value.shape_dynamism == schema.DYNAMIC_BOUND


def test_without_memory_of_its_own_a_static_view_is_an_instruction() -> None:
    config = ExecutorchBackendConfig(
        kernels="executorch-portable", memory_planning_pass=MemoryPlanningPass(alloc_graph_input=False)
    )
    model = torch.nn.Module()
    model.forward = lambda x: x.view(6).cos()
    plan = _plan(
        to_edge(torch.export.export(model, (random(2, 3),))).to_executorch(config).executorch_program
    )
    assert [name for name, _ in _calls(plan)] == ["executorch_prim::et_view.default", "aten::cos.out"]


def test_remove_view_copy_can_be_switched_off() -> None:
    config = ExecutorchBackendConfig(kernels="executorch-portable", remove_view_copy=False)
    model = torch.nn.Module()
    model.forward = lambda x: x.view(6).cos()
    plan = _plan(
        to_edge(torch.export.export(model, (random(2, 3),))).to_executorch(config).executorch_program
    )
    assert [name for name, _ in _calls(plan)] == ["aten::view_copy.out", "aten::cos.out"]


def test_an_updated_buffer_has_a_place_and_initial_bytes() -> None:
    program = edge_program_of("accumulator").to_executorch(PORTABLE).executorch_program
    plan = _plan(program)
    [state] = [
        value.val
        for value in plan.values
        if isinstance(value.val, schema.Tensor) and value.val.extra_tensor_info is not None
    ]
    assert state.extra_tensor_info.fully_qualified_name == "total"
    assert state.data_buffer_idx == 1
    assert state.allocation_info is not None
    assert program.mutable_data[1].storage == torch.tensor([1.0, 2.0, 3.0]).numpy().tobytes()
    name, args = _calls(plan)[0]
    assert name == "aten::add.out"
    assert plan.values[args[-1]].val is state
    assert len(plan.outputs) == 1


def test_an_unused_constant_is_not_stored() -> None:
    model = torch.nn.Module()
    model.register_buffer("unused", torch.ones(100))
    model.forward = lambda x: x + 1
    program = to_edge(torch.export.export(model, (random(2),))).to_executorch(PORTABLE).executorch_program
    assert [len(buffer.storage) for buffer in program.constant_buffer] == [0, 4]


def test_two_methods_store_a_shared_weight_once() -> None:
    layer = torch.nn.Linear(3, 3).eval()
    captured = torch.export.export(layer, (random(2, 3),))
    program = to_edge({"b": captured, "a": captured}).to_executorch(PORTABLE).executorch_program
    assert [plan.name for plan in program.execution_plan] == ["a", "b"]
    assert len(program.constant_buffer) == 3


def test_channels_last_constants_are_stored_in_that_order() -> None:
    class Scale(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(random(1, 2, 3, 4).to(memory_format=torch.channels_last))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight

    program = (
        to_edge(torch.export.export(Scale(), (random(1, 2, 3, 4),)))
        .to_executorch(PORTABLE)
        .executorch_program
    )
    value = _plan(program).values[0].val
    assert isinstance(value, schema.Tensor)
    assert value.dim_order == [0, 2, 3, 1]
    assert (
        program.constant_buffer[1].storage
        == random(1, 2, 3, 4).permute(0, 2, 3, 1).contiguous().numpy().tobytes()
    )


def test_inputs_and_outputs_keep_their_order_and_kinds() -> None:
    plan = _case("everything")
    kinds = [type(plan.values[index].val).__name__ for index in plan.inputs]
    assert kinds == ["Tensor", "Int", "Null"]
    kinds = [type(plan.values[index].val).__name__ for index in plan.outputs]
    assert kinds == ["Tensor", "Tensor", "Int", "Tensor"]
    nested = _case("nested")
    assert [type(nested.values[index].val).__name__ for index in nested.outputs] == [
        "Tensor",
        "Tensor",
        "Tensor",
        "Null",
        "Int",
    ]


def test_trees_are_json() -> None:
    meta = _case("nested").container_meta_type
    for text in (meta.encoded_inp_str, meta.encoded_out_str):
        spec = torch.utils._pytree.treespec_loads(text)
        assert spec.num_leaves > 0
    assert torch.utils._pytree.treespec_loads(meta.encoded_out_str).num_leaves == 5


@pytest.mark.parametrize("name", CASES)
def test_every_index_is_in_range_and_every_value_is_known_before_it_is_used(name: str) -> None:
    plan = _case(name)
    assert plan.non_const_buffer_sizes[0] == 0
    for value in plan.values:
        tensor = value.val
        if isinstance(tensor, schema.Tensor) and tensor.allocation_info is not None:
            assert 1 <= tensor.allocation_info.memory_id < len(plan.non_const_buffer_sizes)
            nbytes = torch.Size(tensor.sizes).numel()
            limit = plan.non_const_buffer_sizes[tensor.allocation_info.memory_id]
            assert tensor.allocation_info.memory_offset + nbytes <= limit
        if isinstance(tensor, (schema.TensorList, schema.OptionalTensorList)):
            assert all(-1 <= item < plan.values.index(value) for item in tensor.items)
    for _, args in _calls(plan):
        assert all(0 <= argument < len(plan.values) for argument in args)


def test_both_branches_of_a_choice_write_to_one_result() -> None:
    def function(x: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
        return torch.cond(p, lambda x: x.sin(), lambda x: x.cos(), (x,)) + 1

    plan = _plan(emitted(function, random(3), torch.tensor(True)).executorch_program)
    steps = [instruction.instr_args for instruction in plan.chains[0].instructions]
    kinds = [type(step).__name__ for step in steps]
    assert kinds == ["JumpFalseCall", "KernelCall", "JumpFalseCall", "KernelCall", "KernelCall"]
    assert steps[0] == schema.JumpFalseCall(plan.inputs[1], 3)
    assert steps[2].destination_instruction == 4
    assert plan.values[steps[2].cond_value_index].val == schema.Bool(False)
    assert steps[1].args[-1] == steps[3].args[-1] == steps[4].args[0]


def test_jumps_stay_in_the_chain() -> None:
    plan = _case("branches")
    instructions = plan.chains[0].instructions
    jumps = [step.instr_args for step in instructions if isinstance(step.instr_args, schema.JumpFalseCall)]
    assert len(jumps) == 4
    for jump in jumps:
        assert 0 < jump.destination_instruction <= len(instructions)


class Counter(torch.nn.Module):
    """Adds what it is given to a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.full((3,), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x)
        return self.total * 2


def _unplanned_state(**options: bool) -> schema.Program:
    planning = MemoryPlanningPass(alloc_mutable_buffers=False)
    config = ExecutorchBackendConfig(memory_planning_pass=planning, **options)
    return to_edge(torch.export.export(Counter(), (random(3),))).to_executorch(config).executorch_program


def test_a_buffer_without_place_has_a_name_and_no_bytes_and_starts_with_zeros_here() -> None:
    program = _unplanned_state(emit_mutable_buffer_names=True)
    tensors = [each.val for each in _plan(program).values if isinstance(each.val, schema.Tensor)]
    [buffer] = [each for each in tensors if each.extra_tensor_info is not None]
    assert buffer.extra_tensor_info.fully_qualified_name == "total"
    assert buffer.allocation_info is None
    assert buffer.data_buffer_idx == 0
    method = pteron.load(serialize_program(program)).load_method("forward")
    for total in (2.0, 4.0):
        [doubled] = method.execute([np.ones(3, np.float32)])
        assert np.array_equal(doubled, np.full(3, total, np.float32))


def test_a_buffer_without_place_needs_its_name_in_the_file() -> None:
    with pytest.raises(ExportError, match=r"updates total, and the caller .* finds no name of them"):
        _unplanned_state()


def test_the_debug_handle_of_an_emitted_node_is_its_instruction() -> None:
    edge = to_edge(torch.export.export(_Chain(), (random(4),)))
    program = edge.to_executorch()
    planned, emitted_as = program.exported_program(), program.debug_handle_map["forward"]
    calls = [node for node in planned.graph.nodes if isinstance(node.target, torch._ops.OpOverload)]
    calls = [node for node in calls if "debug_handle" in node.meta]
    assert [node.meta["debug_handle"] for node in calls] == list(range(len(calls)))
    before = {
        node.meta["debug_handle"]
        for node in edge.exported_program().graph.nodes
        if node.op != "output" and "debug_handle" in node.meta
    }
    assert {emitted_as[at] for at in range(len(calls))} <= before
    again = emit_program({"forward": (planned, memory_sizes(planned))}, {})
    assert again.debug_handle_map["forward"] == emitted_as


class _Chain(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(torch.cos(x + 1))


def _constants(*tensors: torch.Tensor) -> list[memoryview | bytes]:
    class Sum(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for number, tensor in enumerate(tensors):
                self.register_buffer(f"b{number}", tensor)

        def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
            return [x.to(tensor.dtype).sum() * tensor for tensor in self.buffers()]

    program = to_edge(torch.export.export(Sum(), (random(4),))).to_executorch(PORTABLE).executorch_program
    return [buffer.storage for buffer in program.constant_buffer[1:]]


def test_equal_constants_are_stored_once() -> None:
    long = torch.arange(700_000.0)
    middle = long.clone()
    middle[400_000] = -1.0
    assert len(_constants(long, long.clone())) == 1
    assert len(_constants(long, middle)) == 2
    assert len(_constants(torch.zeros(4), torch.zeros(2, 2))) == 2
    assert len(_constants(torch.zeros(4), torch.zeros(4, dtype=torch.int32))) == 2
    assert len(_constants(torch.tensor([0.0]), torch.tensor([-0.0]))) == 2
