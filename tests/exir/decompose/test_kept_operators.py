"""Operators that were kept whole, for backends or on request, and that no backend took."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.export import Dim, ExportedProgram, export
from torch.nn import functional

import pteron
from pteron.errors import ExportError
from pteron.exir import (
    EdgeCompileConfig,
    EdgeProgramManager,
    ExecutorchBackendConfig,
    to_edge,
    to_edge_transform_and_lower,
)
from pteron.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from pteron.exir.decompose.decompose_leftovers import decompose_leftovers
from pteron.exir.edge.control_flow import graph_modules
from pteron.exir.edge.source_location import source_location
from pteron.exir.edge_program import edge_program
from pteron.exir.target.kernel_lists import kernel_names
from tests.backend.lowering_cases import RecordingBackend
from tests.exir.small_models import PORTABLE, random, targets

aten = torch.ops.aten
KEPT = [
    aten.linear.default,
    aten.scaled_dot_product_attention.default,
    aten.layer_norm.default,
]


class Kept(torch.nn.Module):
    """Kept operators that read each other's results, at the top and in a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.norm = torch.nn.LayerNorm(8)

    def forward(self, x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
        query = self.norm(self.linear(x))
        mixed = functional.scaled_dot_product_attention(query, query, x)

        def normed(v: torch.Tensor) -> torch.Tensor:
            return functional.layer_norm(v, (8,)) + 1.0

        def attended(v: torch.Tensor) -> torch.Tensor:
            return functional.scaled_dot_product_attention(v, v, v)

        result: torch.Tensor = torch.cond(flag, normed, attended, (mixed,))
        return result


class WantsWhole(Partitioner):
    """Wants `KEPT` whole (for single calls with `keeps`) and takes only the operators named in `takes`."""

    def __init__(self, *takes: str, keeps: Any = None) -> None:
        super().__init__()
        self.takes, self.keeps = takes, keeps

    def ops_to_not_decompose(self, ep: ExportedProgram) -> tuple[list[Any], Any]:
        return KEPT, self.keeps

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        tags = {}
        for node in exported_program.graph.nodes:
            if getattr(node.target, "__name__", "") in self.takes:
                tag = node.meta["delegation_tag"] = f"tag{len(tags)}"
                tags[tag] = DelegationSpec(RecordingBackend.__name__, [])
        return PartitionResult(exported_program, tags)


@pytest.fixture(scope="module")
def model() -> Kept:
    torch.manual_seed(0)
    return Kept().eval()


@pytest.fixture(scope="module")
def captured(model: Kept) -> ExportedProgram:
    batch = Dim("batch", min=1, max=8)
    return export(model, (random(2, 4, 8), torch.tensor(True)), dynamic_shapes=({0: batch}, None))


@pytest.fixture(scope="module")
def kept(captured: ExportedProgram) -> EdgeProgramManager:
    return to_edge_transform_and_lower(captured, partitioner=[WantsWhole()])


def _calls(program: ExportedProgram) -> list[str]:
    return [
        getattr(node.target, "__name__", str(node.target))
        for module in graph_modules(program.graph_module)
        for node in module.graph.nodes
        if node.op == "call_function"
    ]


@pytest.mark.parametrize("kernels", ["pteron", "executorch-portable"])
def test_a_kept_operator_has_a_kernel_or_is_decomposed(
    kept: EdgeProgramManager, model: Kept, kernels: str
) -> None:
    assert _calls(kept.exported_program()).count("aten.scaled_dot_product_attention.default") == 2
    manager = kept.to_executorch(ExecutorchBackendConfig(kernels=kernels))
    operators = {f"{o.name}.{o.overload}" for o in manager.executorch_program.execution_plan[0].operators}
    assert operators <= kernel_names(kernels)
    assert "aten::linear.out" in operators
    assert "aten::native_layer_norm.out" in operators
    method = pteron.load(manager.buffer).load_method("forward")
    for flag in (torch.tensor(True), torch.tensor(False)):
        x = random(5, 4, 8)
        with torch.no_grad():
            torch.testing.assert_close(method(x, flag), model(x, flag), rtol=1e-4, atol=1e-5)


def test_parts_keep_the_handle_and_the_line_of_their_operator(kept: EdgeProgramManager) -> None:
    program = kept.exported_program()
    before = str(program.graph)
    decomposed = decompose_leftovers(
        program, kernel_names("pteron"), EdgeCompileConfig(), "forward", edge_program
    )
    assert str(program.graph) == before

    def places(found: ExportedProgram) -> list[set[tuple[int, str]]]:
        return [
            {
                (node.meta["debug_handle"], str(source_location(node)))
                for node in module.graph.nodes
                if node.op == "call_function"
            }
            for module in graph_modules(found.graph_module)
        ]

    assert places(decomposed) == places(program)
    names = _calls(decomposed)
    assert "aten.scaled_dot_product_attention.default" not in names
    assert names.count("aten.bmm.default") == 4


def _decomposed(
    manager: EdgeProgramManager, op: torch._ops.OpOverload, kernels: frozenset[str]
) -> tuple[ExportedProgram, int]:
    """The program without `op`, and how many calls of it were brought into the edge dialect."""
    seen: list[int] = []

    def counted(program: ExportedProgram, config: EdgeCompileConfig, method: str) -> ExportedProgram:
        seen.append(sum(node.target is op for node in program.graph.nodes))
        return edge_program(program, config, method, kept_for_kernels=())

    program = manager.exported_program()
    parts = decompose_leftovers(program, kernels, EdgeCompileConfig(), "forward", counted)
    (kinds,) = seen
    return parts, kinds


def test_calls_that_differ_in_operands_alone_are_decomposed_once() -> None:
    """Some read results of others; the last has one operand twice, so that it is another kind."""

    class Layers(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
            attend = functional.scaled_dot_product_attention
            first = attend(x, y, x + y)
            second = attend(first, x, y)
            return first, second, attend(second, first, x), attend(x, y, y)

    op = aten.scaled_dot_product_attention.default
    given = (random(2, 4, 8), random(2, 4, 8))
    shapes: Any = {name: {0: Dim("batch", min=1, max=8)} for name in "xy"}
    manager = to_edge(
        export(Layers(), given, dynamic_shapes=shapes), compile_config=EdgeCompileConfig(preserve_ops=[op])
    )
    parts, kinds = _decomposed(manager, op, kernel_names("executorch-portable"))
    assert kinds == 2
    assert _calls(parts).count("aten.bmm.default") == 8
    method = pteron.load(manager.to_executorch(PORTABLE).buffer).load_method("forward")
    for batch in (1, 5):
        x, y = random(batch, 4, 8), random(batch, 4, 8)
        torch.testing.assert_close(tuple(method(x, y)), Layers()(x, y), rtol=1e-4, atol=1e-5)


def test_random_calls_of_one_kind_draw_each_for_itself() -> None:
    class Noise(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.stack([torch.empty_like(x).exponential_() for _ in range(2)])

    op = aten.exponential.default
    manager = to_edge(export(Noise(), (torch.ones(64),)), compile_config=EdgeCompileConfig(preserve_ops=[op]))
    parts, kinds = _decomposed(manager, op, kernel_names("pteron") - {"aten::exponential.out"})
    assert kinds == 1
    assert _calls(parts).count("aten.rand_like.default") == 2


def test_lowered_modules_stay_where_they_are(captured: ExportedProgram) -> None:
    partitioner = WantsWhole("aten.layer_norm.default")
    program = to_edge_transform_and_lower(captured, partitioner=partitioner).exported_program()
    decomposed = decompose_leftovers(
        program, kernel_names("pteron"), EdgeCompileConfig(), "forward", edge_program
    )
    calls = [node for node in decomposed.graph.nodes if str(node.target) == "executorch_call_delegate"]
    [name] = [str(call.args[0].target) for call in calls]
    assert getattr(decomposed.graph_module, name) is getattr(program.graph_module, name)


def test_single_calls_that_a_filter_kept_are_decomposed_too(captured: ExportedProgram) -> None:
    kept_calls = to_edge_transform_and_lower(captured, partitioner=WantsWhole(keeps=lambda node: True))
    assert "aten.scaled_dot_product_attention.default" in targets(kept_calls.exported_program())
    kept_calls.to_executorch(PORTABLE)


def test_preserved_and_excepted_operators_are_decomposed_for_a_target_without_kernel() -> None:
    model = torch.nn.Module()
    model.forward = lambda x: functional.scaled_dot_product_attention(x, x, x)  # type: ignore[method-assign]
    program = export(model, (random(2, 4, 8),))
    op = aten.scaled_dot_product_attention.default
    for config in (
        EdgeCompileConfig(preserve_ops=[op]),
        EdgeCompileConfig(_core_aten_ops_exception_list=[op]),
    ):
        manager = to_edge(program, compile_config=config)
        assert targets(manager.exported_program()) == ["aten.scaled_dot_product_attention.default"]
        operators = manager.to_executorch(PORTABLE).executorch_program.execution_plan[0].operators
        assert "aten::bmm" in [operator.name for operator in operators]


def test_no_list_of_operators_is_an_empty_one() -> None:
    config = EdgeCompileConfig(_core_aten_ops_exception_list=None, preserve_ops=None)  # type: ignore[arg-type]
    assert (config._core_aten_ops_exception_list, config.preserve_ops) == ([], [])


def test_nothing_to_decompose_gives_the_same_program() -> None:
    program = to_edge(export(torch.nn.Linear(2, 2), (random(1, 2),))).exported_program()
    assert (
        decompose_leftovers(program, kernel_names("pteron"), EdgeCompileConfig(), "forward", edge_program)
        is program
    )


def test_an_operator_that_nothing_decomposes_is_a_problem_with_its_line() -> None:
    class Factor(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.cholesky_ex(x)[0]

    config = EdgeCompileConfig(_core_aten_ops_exception_list=[aten.linalg_cholesky_ex.default])
    manager = to_edge(export(Factor(), (torch.eye(2),)), compile_config=config)
    with pytest.raises(ExportError, match=r"linalg_cholesky_ex.*test_kept_operators\.py"):
        manager.to_executorch(PORTABLE)
