"""Lists of passes that run together."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.fx.passes.infra.pass_base import PassResult
from torch.fx.passes.infra.pass_manager import this_before_that_pass_constraint

from pteron.errors import ExportError
from pteron.exir import to_edge
from pteron.exir.edge.exir_ops import exir_ops
from pteron.exir.passes import (
    ExportedProgramPassManager,
    ExportPass,
    PassManager,
    merge_common_subexpressions,
)
from tests.exir.small_models import edge_of, random, targets

_NEXT = {exir_ops.edge.aten.sin.default: exir_ops.edge.aten.cos.default}


class SinBecomesCos(ExportPass):
    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
        return super().call_operator(_NEXT.get(op, op), args, kwargs, meta)


def cos_becomes_exp(module: torch.fx.GraphModule) -> PassResult:
    found = [n for n in module.graph.nodes if n.target is exir_ops.edge.aten.cos.default]
    for node in found:
        node.target = exir_ops.edge.aten.exp.default
    return PassResult(module, bool(found))


@pytest.fixture(scope="module")
def program() -> ExportedProgram:
    return edge_of(lambda x: (x.sin() + x.sin(), x.cos()), random(3)).exported_program()


def test_passes_run_in_order_over_a_copy_of_a_program(program: ExportedProgram) -> None:
    before = targets(program)
    manager = ExportedProgramPassManager([[SinBecomesCos()], [merge_common_subexpressions, cos_becomes_exp]])
    result = manager(program)
    assert result.modified
    # What is returned is not merged with what is read.
    assert targets(result.exported_program) == ["aten.exp.default", "aten.add.Tensor", "aten.exp.default"]
    assert targets(program) == before
    x = torch.rand(3)
    total, single = result.exported_program.module()(x)
    torch.testing.assert_close((total, single), (2 * x.exp(), x.exp()))


def test_steps_end_when_nothing_changes(program: ExportedProgram) -> None:
    calls = []

    def counted(module: torch.fx.GraphModule) -> PassResult:
        calls.append(module)
        return cos_becomes_exp(module)

    assert ExportedProgramPassManager([counted], steps=5)(program).modified
    assert len(calls) == 2
    assert not ExportedProgramPassManager([])(program).modified


def test_constraints_order_the_passes(program: ExportedProgram) -> None:
    first = SinBecomesCos()
    manager = ExportedProgramPassManager(
        [cos_becomes_exp, first], constraints=[this_before_that_pass_constraint(first, cos_becomes_exp)]
    )
    assert "aten.cos.default" not in targets(manager(program).exported_program)


def test_a_pass_manager_over_a_module(program: ExportedProgram) -> None:
    module = edge_of(lambda x: x.sin(), random(3)).exported_program().graph_module
    result = PassManager([[SinBecomesCos(), cos_becomes_exp]], run_checks_after_each_pass=True)(module)
    assert result.modified
    assert any(n.target is exir_ops.edge.aten.exp.default for n in result.graph_module.graph.nodes)
    with pytest.raises(TypeError, match="use ExportedProgramPassManager"):
        PassManager([merge_common_subexpressions])


def test_a_failing_pass_is_named_and_methods_by_name_are_refused(program: ExportedProgram) -> None:
    def adds_method(module: torch.fx.GraphModule) -> None:
        graph = module.graph
        with graph.inserting_before(graph.output_node()):
            graph.call_method("relu", (next(iter(graph.nodes)),))

    with pytest.raises(ExportError, match="call_method 'relu'") as caught:
        ExportedProgramPassManager([adds_method], run_checks_after_each_pass=True)(program)
    assert any("adds_method" in note for note in caught.value.__notes__)
    with pytest.raises(TypeError, match="expected passes, got int"):
        PassManager([3])


class _Fold:
    """Replaces `weight * 2` by a constant of its own, as vendors' passes do: it holds the program, and writes
    the state dict, the signature and the graph.
    """

    def __init__(self, program: ExportedProgram) -> None:
        self.program = program

    def __call__(self, module: torch.fx.GraphModule) -> PassResult:
        assert module is self.program.graph_module
        signature = self.program.graph_signature
        [product] = [n for n in module.graph.nodes if "aten.mul" in str(n.target)]
        weight = product.args[0]
        self.program.state_dict["folded"] = torch.nn.Parameter(self.program.state_dict["weight"] * 2)
        with module.graph.inserting_before(weight):
            placeholder = module.graph.placeholder("p_folded")
        placeholder.meta = dict(product.meta)
        place = [spec.arg.name for spec in signature.input_specs].index(weight.name)
        signature.input_specs.insert(
            place, InputSpec(InputKind.PARAMETER, TensorArgument(name="p_folded"), "folded", None)
        )
        product.replace_all_uses_with(placeholder)
        module.graph.erase_node(product)
        module.graph.erase_node(weight)
        del signature.input_specs[place + 1]
        del self.program.state_dict["weight"]
        return PassResult(module, True)


class Doubled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([1.0, 2.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.weight * 2


def test_a_pass_may_hold_the_program_and_write_its_state() -> None:
    manager = to_edge(torch.export.export(Doubled(), (torch.ones(2),)))
    source = manager.exported_program()
    before = (targets(source), len(source.graph_signature.input_specs))
    # A second pass sees what the first one wrote, through the program that it holds.
    seen: list[set[str]] = []

    def look(module: torch.fx.GraphModule) -> None:
        seen.append(set(source.state_dict))

    by_transform = manager.transform([_Fold(source), look]).exported_program()
    assert set(source.state_dict) == {"weight"}
    by_manager = ExportedProgramPassManager([_Fold(source), SinBecomesCos(), look])(source).exported_program
    # Code of vendors reads the constants of the new graph from the program that it gave.
    assert set(source.state_dict) == {"weight", "folded"}
    assert source.state_dict["folded"] is by_manager.state_dict["folded"]
    assert seen == [{"folded"}, {"folded"}]
    for result in (by_manager, by_transform):
        result.validate()
        assert targets(result) == ["aten.add.Tensor"]
        assert set(result.state_dict) == {"folded"}
        torch.testing.assert_close(result.module()(torch.ones(2)), torch.tensor([3.0, 5.0]))
    assert (targets(source), len(source.graph_signature.input_specs)) == before
    torch.testing.assert_close(source.module()(torch.ones(2)), torch.tensor([3.0, 5.0]))


def test_a_failing_pass_leaves_the_program_as_it_was() -> None:
    source = to_edge(torch.export.export(Doubled(), (torch.ones(2),))).exported_program()

    def fail(module: torch.fx.GraphModule) -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        ExportedProgramPassManager([_Fold(source), fail])(source)
    assert set(source.state_dict) == {"weight"}
    source.validate()
