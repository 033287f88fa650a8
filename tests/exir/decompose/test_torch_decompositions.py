"""PyTorch's decompositions without its own detour: the same graphs, sooner."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch._ops import OpOverload
from torch.export import ExportedProgram, default_decompositions, export

from pteron.exir.decompose import torch_decompositions
from pteron.exir.decompose.torch_decompositions import run_decompositions
from pteron.exir.edge.control_flow import graph_modules
from tests.exir.small_models import CASES, captured


class Attention(nn.Module):
    """Heads of attention with weights that ask for gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


class Attended(nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)


def _attention() -> ExportedProgram:
    return export(Attention().eval(), (torch.randn(2, 5, 8),))


def _attended() -> ExportedProgram:
    mask = torch.ones(1, 1, 4, 4, dtype=torch.bool).tril()
    return export(Attended(), (torch.randn(1, 2, 4, 8), mask))


def _training() -> ExportedProgram:
    model = nn.Sequential(
        nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.GELU(), nn.Dropout(0.5), nn.Upsample(scale_factor=2)
    )
    return export(model.train(), (torch.randn(2, 2, 9),))


def _calls(program: ExportedProgram) -> list[tuple[str, list[tuple[str, str]]]]:
    found = []
    for module in graph_modules(program.graph_module):
        for node in module.graph.nodes:
            if node.op != "call_function" or not isinstance(node.target, OpOverload):
                continue
            values = torch.utils._pytree.tree_leaves(node.meta.get("val"))
            tensors = [(str(v.dtype), str(v.shape)) for v in values if isinstance(v, torch.Tensor)]
            found.append((str(node.target), tensors))
    return found


def _count(program: ExportedProgram, target: str) -> int:
    return sum(name == target for name, _ in _calls(program))


MADE = {"attention": _attention, "attended": _attended, "training": _training}
# Their linear layers have transposed inputs, for which the decomposition in Python expands the weight.
DIFFERS = {"lstm", "attention"}


@pytest.mark.parametrize("name", sorted(CASES.keys() | MADE.keys()))
def test_the_graph_is_that_of_run_decompositions(name: str) -> None:
    program = MADE[name]() if name in MADE else captured(name)
    theirs = program.run_decompositions(default_decompositions())
    ours = run_decompositions(program, {}, ())
    if name in DIFFERS:
        assert len(_calls(ours)) < len(_calls(theirs))
        assert _count(ours, "aten.expand.default") < _count(theirs, "aten.expand.default")
    else:
        assert _calls(ours) == _calls(theirs)
    kinds = [[(spec.kind, spec.target) for spec in p.graph_signature.input_specs] for p in (ours, theirs)]
    assert kinds[0] == kinds[1]
    assert ours.state_dict.keys() == theirs.state_dict.keys()


def test_provenance_survives() -> None:
    program = run_decompositions(captured("mlp"), {}, ())
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    assert len(calls) == 5
    for node in calls:
        assert node.meta["from_node"]
        assert node.meta["nn_module_stack"]
        assert "modules/" in node.meta["stack_trace"]


def test_operators_are_kept_whole_before_and_after_autograd() -> None:
    linear, relu = torch.ops.aten.linear.default, torch.ops.aten.relu.default
    whole = run_decompositions(captured("mlp"), {}, (linear, relu))
    assert [name for name, _ in _calls(whole)] == [str(linear), str(relu), str(linear)]
    again = run_decompositions(captured("mlp"), {}, ())
    assert str(linear) not in {name for name, _ in _calls(again)}


def test_rules_beyond_the_default_table_are_used() -> None:
    relu = torch.ops.aten.relu.default
    assert relu not in default_decompositions().materialize()
    program = run_decompositions(captured("mlp"), {relu: lambda x: torch.clamp_min(x, 0)}, ())
    assert "aten.clamp_min.default" in {name for name, _ in _calls(program)} or "aten.clamp.default" in {
        name for name, _ in _calls(program)
    }


def test_an_operator_that_is_registered_later_is_seen() -> None:
    run_decompositions(captured("mlp"), {}, ())
    before = torch_decompositions._default_tables.cache_info().misses
    library = torch.library.Library("pteron_test_later", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x + x, "CompositeImplicitAutograd")

    class Twice(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.ops.pteron_test_later.twice(x)

    program = export(Twice(), (torch.ones(2),))
    twice = torch.ops.pteron_test_later.twice.default
    assert [name for name, _ in _calls(run_decompositions(program, {}, ()))] == ["aten.add.Tensor"]
    assert [name for name, _ in _calls(run_decompositions(program, {}, (twice,)))] == [str(twice)]
    assert torch_decompositions._default_tables.cache_info().misses > before


def test_pytorchs_warning_of_itself_does_not_reach_the_user() -> None:
    program = export(nn.Linear(2, 2), (torch.ones(1, 2),))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _calls(run_decompositions(program, {}, ()))
