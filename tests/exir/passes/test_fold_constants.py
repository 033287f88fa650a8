"""`FoldConstants`: what depends on constants alone is computed at export, and nothing else is."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.export import export

from pteron.exir import ExecutorchBackendConfig, to_edge
from pteron.exir.passes import FoldConstants
from tests.exir.passes.pass_case import PassCase
from tests.exir.small_models import Accumulator, Branches, edge_program_of, mlp, random, targets


class WithBuffer(nn.Module):
    def __init__(self, function: Any, value: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("table", value)
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self.table, x)


def fold(function: Any, table: torch.Tensor | None = None, *args: Any) -> PassCase:
    module = WithBuffer(function, random(4, 3) if table is None else table)
    return PassCase(module, args or (random(3, 4),), FoldConstants()).check()


def test_permutes_of_weights_become_weights() -> None:
    case = PassCase(mlp(), (random(2, 8),), FoldConstants()).check()
    assert case.calls == ["aten.addmm.default", "aten.relu.default", "aten.addmm.default"]
    signature = case.after.exported_program().graph_signature
    assert not [spec for spec in signature.input_specs if spec.target in ("0.weight", "2.weight")]


def test_chains_and_several_results_fold() -> None:
    case = fold(lambda table, x: x + (table.t() * 2 + 1).split(1, 0)[1].sin().expand(3, 4))
    assert case.calls == ["aten.add.Tensor"]


def test_the_file_does_not_grow() -> None:
    edge = to_edge(export(mlp(), (random(2, 8),)))
    plain, folded = (
        edge.to_executorch(ExecutorchBackendConfig(optimize=optimize)).executorch_program
        for optimize in (False, (FoldConstants(),))
    )
    sizes = [sum(len(buffer.storage) for buffer in each.constant_buffer) for each in (plain, folded)]
    assert sizes[0] == sizes[1]


def test_a_weight_that_is_read_as_it_is_too_is_not_stored_twice() -> None:
    table = random(300, 200)
    case = fold(lambda table, x: (x @ table.t(), x.sum(0) + table), table, random(2, 200))
    assert "aten.permute_copy.default" in case.calls
    small = fold(lambda table, x: (x @ table.t(), x @ table[:3].t()), random(8, 3), random(2, 3))
    assert small.calls == ["aten.mm.default", "aten.mm.default"]


def test_growth_is_capped_and_the_cap_can_be_set() -> None:
    def masked(table: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return x + table.expand(300, 300)

    module = WithBuffer(masked, random(1, 300).sin())
    args = (random(300, 300),)
    assert PassCase(module, args, FoldConstants()).calls == ["aten.expand_copy.default", "aten.add.Tensor"]
    assert PassCase(module, args, FoldConstants(most_growth=1 << 20)).check().calls == ["aten.add.Tensor"]


def test_what_is_behind_a_result_that_is_too_large_folds_still() -> None:
    module = WithBuffer(lambda table, x: x + table.sin().expand(300, 300), random(1, 300))
    case = PassCase(module, (random(300, 300),), FoldConstants()).check()
    assert case.calls == ["aten.expand_copy.default", "aten.add.Tensor"]


def test_tensors_made_from_nothing_fold_where_they_are_small() -> None:
    case = PassCase(lambda x: x + torch.arange(4.0) * 2, (random(3, 4),), FoldConstants()).check()
    assert case.calls == ["aten.add.Tensor"]
    large = PassCase(lambda x: x + torch.arange(40000.0), (random(1, 40000),), FoldConstants())
    assert "aten.arange.start_step" in large.calls


def test_a_buffer_that_a_run_updates_is_no_constant() -> None:
    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("state", torch.ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            before = self.state.sin()
            self.state.add_(x)
            return before

    case = PassCase(Reads(), (random(3),), FoldConstants()).check((random(3),), (random(3) * 2,))
    assert "aten.sin.default" in case.calls
    PassCase(Accumulator(), (torch.ones(3),), FoldConstants()).check((torch.ones(3),))


def test_random_and_uninitialised_results_stay() -> None:
    def drawn(table: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return table.bernoulli() * 0 + torch.rand(3, 4) * 0 + torch.empty(3, 4) * 0 + x

    case = PassCase(WithBuffer(drawn, torch.rand(3, 4)), (random(3, 4),), FoldConstants())
    assert case.calls == case.calls_before
    assert case.calls.count("aten.rand.default") == 2


def test_dequantised_weights_stay_for_kernels_that_look_for_them() -> None:
    import torch.ao.quantization.fx._decomposed

    dequantize = torch.ops.quantized_decomposed.dequantize_per_tensor
    case = PassCase(
        WithBuffer(
            lambda table, x: x @ dequantize(table, 0.1, 0, -128, 127, torch.int8).t(),
            torch.arange(12, dtype=torch.int8).reshape(4, 3),
        ),
        (random(2, 3),),
        FoldConstants(),
    )
    assert case.calls == case.calls_before
    assert "quantized_decomposed.dequantize_per_tensor.default" in case.calls


def test_a_result_that_is_returned_is_still_computed_into_the_output() -> None:
    case = fold(lambda table, x: (table.sin() * 2, x + 1, table))
    assert "aten.mul.Tensor" in case.calls
    assert "aten.sin.default" not in case.calls


def test_shapes_that_vary_do_not_fold() -> None:
    rows = torch.export.Dim("rows", min=1, max=8)
    module = WithBuffer(lambda table, x: x + table.expand(x.shape[0], 3), random(1, 3))
    case = PassCase(module, (random(4, 3),), FoldConstants(), dynamic_shapes=({0: rows},))
    assert "aten.expand_copy.default" in case.check((random(8, 3),)).calls


def test_branches_keep_their_own_and_read_folded_operands() -> None:
    inputs = (random(4, 4), torch.tensor(True), torch.tensor(False))
    case = PassCase(Branches(), inputs, FoldConstants())
    case.check((random(4, 4), torch.tensor(False), torch.tensor(False)))


def test_an_unrolled_lstm_reads_each_weight_as_it_is_in_the_file() -> None:
    graph = edge_program_of("lstm").transform([FoldConstants()]).exported_program().graph
    permuted = [node.args[0].name for node in graph.nodes if "permute" in str(node.target)]
    assert [name for name in permuted if name.startswith(("p_", "b_", "c_"))] == []


def test_methods_share_what_they_fold() -> None:
    model = mlp()
    programs = {name: export(model, (random(rows, 8),)) for name, rows in (("one", 1), ("two", 2))}
    both = to_edge(programs).to_executorch().executorch_program
    one = to_edge(programs["one"]).to_executorch().executorch_program
    assert len(both.constant_buffer) == len(one.constant_buffer)


def test_a_weight_that_another_method_reads_as_it_is_counts_as_growth() -> None:
    weight = nn.Parameter(random(200, 100))

    class Times(nn.Module):
        def __init__(self, is_transposed: bool) -> None:
            super().__init__()
            self.weight = weight
            self.is_transposed = is_transposed

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ (self.weight.t() if self.is_transposed else self.weight)

    programs = {
        "plain": export(Times(False), (random(2, 200),)),
        "transposed": export(Times(True), (random(2, 100),)),
    }
    program = to_edge(programs).to_executorch().executorch_program
    assert sum(len(buffer.storage) for buffer in program.constant_buffer) == 200 * 100 * 4


def test_the_program_given_is_left_as_it_was() -> None:
    edge = to_edge(export(mlp(), (random(2, 8),)))
    before = targets(edge.exported_program())
    edge.to_executorch()
    assert targets(edge.exported_program()) == before
    assert "0.weight" in edge.exported_program().state_dict


def test_one_pass_object_serves_one_model_after_another() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("w", torch.ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.w.sin()

    model, fold = Scaled(), FoldConstants()
    for _ in range(2):
        # The second time another value lies at the same address.
        model.w.add_(1)
        program = to_edge(export(model, (torch.zeros(3),))).transform([fold]).exported_program()
        torch.testing.assert_close(program.module()(torch.zeros(3)), model(torch.zeros(3)))


def test_large_weights_that_only_move_stay_for_the_run_half() -> None:
    edge = to_edge(export(nn.Linear(640, 512), (torch.randn(2, 640),)))

    def operators(kernels: str) -> list[str]:
        manager = edge.to_executorch(ExecutorchBackendConfig(kernels=kernels))
        return [operator.name for operator in manager.executorch_program.execution_plan[0].operators]

    assert operators("pteron") == ["aten::permute_copy", "aten::addmm"]
    # There the weight would be moved in every run.
    assert operators("executorch-portable") == ["aten::addmm"]
