"""`ExportPass` and `ExportedProgramPassBase`: passes as users write them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.fx.passes.infra.pass_base import PassResult

import pteron
from pteron.exir import ExecutorchBackendConfig, to_edge
from pteron.exir.edge.control_flow import graph_modules
from pteron.exir.edge.exir_ops import exir_ops
from pteron.exir.passes import (
    ExportedProgramPassBase,
    ExportedProgramPassResult,
    ExportPass,
    ExportPassBaseError,
    NodeMetadata,
    ProxyValue,
    in_place_pass,
)
from tests.exir.small_models import CASES, Branches, edge_of, edge_program_of, random, targets

_ops = exir_ops.edge.aten


class AddBecomesMul(ExportPass):
    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
        if op is _ops.add.Tensor:
            op, kwargs = _ops.mul.Tensor, {}
        return super().call_operator(op, args, kwargs, meta)


class Nothing(ExportPass):
    pass


def _run(manager: Any, *args: torch.Tensor) -> Any:
    config = ExecutorchBackendConfig(optimize=False)
    method = pteron.load(manager.to_executorch(config).buffer).load_method("forward")
    return method(*(each.numpy() for each in args))


def test_an_operator_is_replaced_in_transform_and_in_to_executorch() -> None:
    x, y = random(3), random(3) + 1
    edge = edge_of(lambda x, y: (x + y).sin(), x, y)
    changed = edge.transform([AddBecomesMul()])
    assert targets(changed.exported_program()) == ["aten.mul.Tensor", "aten.sin.default"]
    np.testing.assert_allclose(_run(changed, x, y), (x * y).sin(), rtol=1e-6)
    config = ExecutorchBackendConfig(passes=[AddBecomesMul()])
    method = pteron.load(edge.to_executorch(config).buffer).load_method("forward")
    np.testing.assert_allclose(method(x.numpy(), y.numpy()), (x * y).sin(), rtol=1e-6)


@pytest.mark.parametrize(
    "name", [name for name in CASES if name not in ("convolutional_dynamic", "depthwise")]
)
def test_a_pass_that_changes_nothing_changes_nothing(name: str) -> None:
    before = edge_program_of(name)
    after = before.transform([Nothing()])
    old, new = before.exported_program(), after.exported_program()
    assert targets(new) == targets(old)
    for one, other in zip(old.graph.nodes, new.graph.nodes, strict=True):
        assert one.op == other.op
        assert one.meta.get("debug_handle") == other.meta.get("debug_handle")
        assert _described(one) == _described(other), one.name
    assert before.to_executorch().buffer == after.to_executorch().buffer


def _described(node: torch.fx.Node) -> str:
    leaves = torch.utils._pytree.tree_leaves(node.meta.get("val")) if node.op != "output" else []
    return str([(each.dtype, each.shape) if isinstance(each, torch.Tensor) else each for each in leaves])


def test_one_operator_becomes_several_with_right_dtypes() -> None:
    class InDouble(ExportPass):
        def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
            if op is not _ops.sin.default:
                return super().call_operator(op, args, kwargs, meta)
            cast = exir_ops.edge.dim_order_ops._to_dim_order_copy.default
            wide = super().call_operator(cast, args, {"dtype": torch.float64}, meta)
            assert wide.is_tensor()
            assert wide.to_tensor().dtype is torch.float64
            result = super().call_operator(op, (wide,), {}, meta)
            return super().call_operator(cast, (result,), {"dtype": torch.float32}, meta)

    x = random(3)
    edge = edge_of(lambda x: x.sin() + 1, x).transform([InDouble()])
    assert len(targets(edge.exported_program())) == 4
    np.testing.assert_allclose(_run(edge, x), x.sin() + 1, rtol=1e-6)


def test_a_tensor_that_a_pass_brings_becomes_a_constant() -> None:
    class AddsWeights(ExportPass):
        def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
            result = super().call_operator(op, args, kwargs, meta)
            if op is _ops.sin.default:
                return super().call_operator(_ops.mul.Tensor, (result, torch.arange(3.0)), {}, meta)
            return result

    x = random(3)
    edge = edge_of(lambda x: x.sin(), x).transform([AddsWeights()])
    assert not [node for node in edge.exported_program().graph.nodes if node.op == "get_attr"]
    np.testing.assert_allclose(_run(edge, x), x.sin() * torch.arange(3.0), rtol=1e-6)


def test_branches_go_through_the_hooks() -> None:
    inputs = (random(4, 4), torch.tensor(True), torch.tensor(True))
    edge = to_edge(torch.export.export(Branches().eval(), inputs))
    changed = edge.transform([AddBecomesMul()])
    old, new = (list(graph_modules(each.exported_program().graph_module)) for each in (edge, changed))
    assert len(old) == len(new) > 1
    assert not [n for each in new for n in each.graph.find_nodes(op="call_function", target=_ops.add.Tensor)]
    changed.to_executorch()


def test_a_graph_edited_by_hand_is_brought_up_to_date() -> None:
    class Swap(ExportPass):
        def call(self, graph_module: torch.fx.GraphModule) -> PassResult:
            for node in graph_module.graph.nodes:
                if node.target is _ops.permute_copy.default:
                    node.args = (node.args[0], [2, 1, 0])
            return super().call(graph_module)

    x = random(2, 3, 4)
    edge = edge_of(lambda x: x.permute(2, 0, 1).sin(), x).transform([Swap()])
    shapes = {tuple(n.meta["val"].shape) for n in edge.exported_program().graph.nodes if "sin" in n.name}
    assert shapes == {(4, 3, 2)}


def test_extents_that_vary_can_be_arguments() -> None:
    class Flatten(ExportPass):
        def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
            if op is not _ops.sin.default:
                return super().call_operator(op, args, kwargs, meta)
            rows = self.call_size_operator(args[0], 0, meta)
            assert self.call_size_operator(args[0], 1, meta) == 4
            flat = super().call_operator(_ops.view_copy.default, (args[0], [-1]), {}, meta)
            result = super().call_operator(op, (flat,), {}, meta)
            return super().call_operator(_ops.view_copy.default, (result, [rows, 4]), {}, meta)

    rows = torch.export.Dim("rows", min=1, max=8)
    x = random(3, 4)
    edge = edge_of(lambda x: x.sin(), x, dynamic_shapes=(({0: rows},),)).transform([Flatten()])
    for size in (1, 8):
        x = random(size, 4)
        np.testing.assert_allclose(_run(edge, x), x.sin(), rtol=1e-6)


def test_all_extents_can_be_arguments_in_both_dialects() -> None:
    seen: list[Any] = []

    class Reshape(ExportPass):
        def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
            result = super().call_operator(op, args, kwargs, meta)
            if op is not _ops.sin.default:
                return result
            seen.append(self.call_size_operator_all(result, meta, edge_dialect=True))
            extents = [*self.call_size_operator_all(result, meta), 1]
            wide = super().call_operator(_ops.view_copy.default, (result, extents), {}, meta)
            return super().call_operator(_ops.view_copy.default, (wide, extents[:-1]), {}, meta)

    rows = torch.export.Dim("rows", min=1, max=8)
    x = random(3, 4)
    edge = edge_of(lambda x: x.sin(), x, dynamic_shapes=(({0: rows},),)).transform([Reshape()])
    [(first, second)] = seen
    assert first.node.target is _ops.sym_size.int
    assert second == 4
    for size in (1, 8):
        x = random(size, 4)
        np.testing.assert_allclose(_run(edge, x), x.sin(), rtol=1e-6)


def test_an_input_whose_extents_vary_keeps_its_symbols() -> None:
    class States(ExportPass):
        def placeholder(self, name: str, arg: Any, meta: NodeMetadata) -> ProxyValue:
            proxy = super().placeholder(name, arg, meta)
            # The numbers of the example: comparing them with the symbols by == would bind these.
            proxy.node.meta["val"] = torch.empty(3, 4, device="meta")
            return proxy

    class Means(States):
        def should_preserve_symbolic_input_metadata(self) -> bool:
            return False

    rows = torch.export.Dim("rows", min=1, max=8)
    edge = edge_of(lambda x: x.sin(), random(3, 4), dynamic_shapes=(({0: rows},),))
    graph_module = edge.exported_program().graph_module
    with pytest.raises(ExportPassBaseError, match="Input at position 0 did not preserve symbolic metadata"):
        States()(graph_module)
    made = Means()(graph_module).graph_module
    assert tuple(next(iter(made.graph.nodes)).meta["val"].shape) == (3, 4)
    kept = next(iter(graph_module.graph.nodes)).meta["val"].shape[0]
    assert kept.node.maybe_as_int() is None


def test_misuse_is_named() -> None:
    class SymbolicArgument(ExportPass):
        def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
            return super().call_operator(
                _ops.view_copy.default, (args[0], [args[0].data.shape[0], 4]), {}, meta
            )

    class FakeArgument(ExportPass):
        def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
            return super().call_operator(op, (args[0].data,), kwargs, meta)

    class AsNumber(ExportPass):
        def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
            size = self.call_size_operator(args[0], 0, meta)
            return super().call_operator(op, args, {"bad": bool(size)}, meta)

    class SetsValue(ExportPass):
        def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
            meta["mine"] = 1
            meta["val"] = None
            return super().call_operator(op, args, kwargs, meta)

    rows = torch.export.Dim("rows", min=1, max=8)
    edge = edge_of(lambda x: x.sin(), random(3, 4), dynamic_shapes=(({0: rows},),))
    for bad, said in (
        (SymbolicArgument(), "symbolic number"),
        (FakeArgument(), "fake tensor"),
        (AsNumber(), "symbolic number"),
        (SetsValue(), "cannot be set by a pass"),
    ):
        with pytest.raises(ExportPassBaseError, match=said):
            edge.transform([bad])


def test_an_error_names_the_node_that_the_pass_was_at() -> None:
    class Fails(ExportPass):
        def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
            raise ZeroDivisionError("oops")

    with pytest.raises(ZeroDivisionError) as caught:
        edge_of(lambda x: x.sin(), random(3)).transform([Fails()])
    assert "aten.sin.default" in caught.value.__notes__[0]


class RenamesNothing(ExportedProgramPassBase):
    def __init__(self) -> None:
        self.steps: list[str] = []

    def requires(self, exported_program: Any) -> None:
        self.steps.append("requires")

    def call(self, exported_program: Any) -> ExportedProgramPassResult:
        self.steps.append("call")
        return ExportedProgramPassResult(exported_program, False)

    def ensures(self, exported_program: Any) -> None:
        self.steps.append("ensures")


def test_a_pass_over_a_whole_program_is_checked_before_and_after() -> None:
    each = RenamesNothing()
    edge = edge_of(lambda x: x.sin(), random(3))
    edge.transform([each])
    assert each.steps == ["requires", "call", "ensures"]

    @in_place_pass
    def doubled(program: Any) -> bool:
        raise AssertionError("ran")

    with pytest.raises(AssertionError, match="ran"):
        edge.to_executorch(ExecutorchBackendConfig(optimize=doubled))
    with pytest.raises(TypeError, match=r"optimize=\.\.\."):
        ExecutorchBackendConfig(optimize=[lambda module: None])  # type: ignore[list-item]
