"""Each rule of a stage refuses a graph that breaks it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.export import ExportedProgram

import pteron
from pteron.errors import UnsupportedProgramError, VerificationError
from pteron.exir import to_edge
from pteron.exir.edge.exir_ops import exir_ops
from pteron.exir.edge.stages import CORE_ATEN, EDGE, OUT_VARIANT, PLANNED
from pteron.exir.edge.verify import verify
from pteron.exir.lower_program import functional_programs, lowering_of, plan_programs
from pteron.exir.passes.spec_prop_pass import SpecPropPass
from pteron.exir.passes.to_out_variants import to_out_variants
from tests.exir.small_models import PORTABLE, edge_of, node_of, random


def _edge() -> ExportedProgram:
    return edge_of(lambda x: (x + 1).sin(), random(3)).exported_program()


def _sin(program: ExportedProgram) -> torch.fx.Node:
    return node_of(program, "aten.sin.default")


def _to_aten(program: ExportedProgram) -> None:
    _sin(program).target = torch.ops.aten.sin.default


def _to_mutating(program: ExportedProgram) -> None:
    _sin(program).target = exir_ops.edge.aten.sin_.default


def _drop_value(program: ExportedProgram) -> None:
    del _sin(program).meta["val"]


def _too_many_arguments(program: ExportedProgram) -> None:
    node = _sin(program)
    node.args = (*node.args, 3)


def _unknown_keyword(program: ExportedProgram) -> None:
    _sin(program).kwargs = {"speed": 3}


def _missing_argument(program: ExportedProgram) -> None:
    _sin(program).args = ()


def _number_for_tensor(program: ExportedProgram) -> None:
    _sin(program).args = (3.0,)


def _to_method(program: ExportedProgram) -> None:
    node = _sin(program)
    node.op, node.target = "call_method", "sin"


def _sparse(program: ExportedProgram) -> None:
    _sin(program).meta["val"] = torch.ones(2, 2).to_sparse()


def _rank(program: ExportedProgram) -> None:
    _sin(program).meta["val"] = torch.ones([1] * 17)


@pytest.mark.parametrize(
    ("damage", "rule", "says"),
    [
        (_to_aten, "edge operators", "is not an edge operator"),
        (_to_mutating, "functional", "changes its arguments"),
        (_drop_value, "has value", 'meta["val"] is missing'),
        (_too_many_arguments, "arguments fit schema", "2 positional arguments, the schema has 1"),
        (_unknown_keyword, "arguments fit schema", "no argument is called 'speed'"),
        (_missing_argument, "arguments fit schema", "argument 'self' is missing"),
        (_number_for_tensor, "arguments fit schema", "argument 'self' must be a tensor"),
        (_to_method, "node kind", "call_method is not allowed"),
        (_sparse, "tensor limits", "only strided tensors"),
        (_rank, "tensor limits", "a tensor of 17 dimensions"),
    ],
)
def test_edge_rules(damage: Callable[[ExportedProgram], None], rule: str, says: str) -> None:
    program = _edge()
    verify(program, EDGE)
    damage(program)
    with pytest.raises(VerificationError) as caught:
        verify(program, EDGE, method="forward")
    text = str(caught.value)
    assert f"edge stage, rule '{rule}'" in text
    assert says in text
    assert "aten_sin_default" in text
    assert "small_models.py:" in text
    assert caught.value.method == "forward"


def test_operands_must_come_first() -> None:
    program = _edge()
    add, sin = node_of(program, "aten.add.Tensor"), _sin(program)
    sin.append(add)
    with pytest.raises(VerificationError, match=r"rule 'operands precede'.*does not come before"):
        verify(program, EDGE)


class _OuterSum(torch.nn.Module):
    def forward(self, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.addr(x, a, b)


def test_core_aten_rule_lets_exceptions_pass() -> None:
    captured = torch.export.export(_OuterSum(), (random(2, 3), random(2), random(3)))
    with pytest.raises(VerificationError, match=r"aten\.addr\.default is not a core ATen operator"):
        verify(captured, CORE_ATEN)
    verify(captured, CORE_ATEN, exceptions=[torch.ops.aten.addr.default])


def test_core_aten_rule_lets_operators_with_a_kernel_pass() -> None:
    verify(torch.export.export(torch.nn.Linear(2, 2), (random(1, 2),)), CORE_ATEN)


class _Median(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.median(x, dim=1).values


def test_what_pytorch_does_not_decompose_runs_where_there_is_a_kernel() -> None:
    x = random(3, 5)
    edge = to_edge(torch.export.export(_Median(), (x,)))
    assert torch.equal(pteron.load(edge.to_executorch().buffer).run("forward", x), _Median()(x))
    with pytest.raises(UnsupportedProgramError, match=r"aten::median\.dim_values"):
        edge.to_executorch(PORTABLE)


class _NegativeZero(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.full_like(x, -0.0)


def test_the_sign_of_a_zero_is_in_the_file() -> None:
    x = random(3)
    buffer = to_edge(torch.export.export(_NegativeZero(), (x,))).to_executorch().buffer
    assert torch.signbit(pteron.load(buffer).run("forward", x)).all()


def _with_out_variants() -> ExportedProgram:
    program = functional_programs({"forward": _edge()}, lowering_of(PORTABLE))["forward"]
    SpecPropPass(program.range_constraints)(program.graph_module)
    to_out_variants(program)
    return program


def test_out_variant_rules() -> None:
    program = _with_out_variants()
    verify(program, OUT_VARIANT)
    sin = next(node for node in program.graph.nodes if node.target is torch.ops.aten.sin.out)
    sin.kwargs = {}
    with pytest.raises(VerificationError, match="argument 'out' is missing"):
        verify(program, OUT_VARIANT)
    sin.target = torch.ops.aten.sin.default
    with pytest.raises(VerificationError, match="does not write into given tensors"):
        verify(program, OUT_VARIANT)
    sin.target = exir_ops.edge.aten.sin.default
    with pytest.raises(VerificationError, match="must have been replaced"):
        verify(program, OUT_VARIANT)


def test_out_variant_stage_needs_specs() -> None:
    program = _with_out_variants()
    del next(node for node in program.graph.nodes if node.target is torch.ops.aten.sin.out).meta["spec"]
    with pytest.raises(VerificationError, match="rule 'spec present'"):
        verify(program, OUT_VARIANT)


def test_planned_stage_needs_places() -> None:
    with pytest.raises(VerificationError, match=r"rule 'has memory'.*no place in planned memory"):
        verify(_with_out_variants(), PLANNED)
    lowering = lowering_of(PORTABLE)
    functional = functional_programs({"forward": _edge()}, lowering)
    program, _ = plan_programs(functional, lowering)["forward"]
    verify(program, PLANNED)
    sin = next(node for node in program.graph.nodes if node.target is torch.ops.aten.sin.out)
    sin.meta["spec"].memory_offset = None
    with pytest.raises(VerificationError, match="without an offset"):
        verify(program, PLANNED)
