"""What compilers of vendors rely on beyond the names: operators under ExecuTorch's namespace, marks on
constants, tags, no-ops that stay where they are asked to.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from pteron.compat.executorch.exir.backend.backend_api import _get_node_list_with_same_tag
from pteron.compat.executorch.exir.dialects._ops import ops
from pteron.compat.executorch.exir.graph_module import _get_control_flow_submodules
from pteron.compat.executorch.exir.passes import SpecPropPass, ToDevicePass
from pteron.compat.executorch.exir.passes.external_constants_pass import (
    delegate_external_constants_pass_unlifted,
    external_constants_pass,
    is_param_node,
)
from pteron.compat.executorch.exir.program._program import _copy_module, _gen_edge_manager_for_partitioners
from torch.fx.passes.infra.pass_base import PassResult

from pteron.backends.demo.op_partitioners import AddMulPartitionerDemo
from pteron.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge, to_edge_transform_and_lower


class Scaled(torch.nn.Module):
    """A weight, a constant of the code, and reshapes that change nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.matmul(x.clone().expand(2, 2).view(2, 2), self.weight) + torch.tensor([1.0, 2.0])


def captured() -> torch.export.ExportedProgram:
    """The program of `Scaled`."""
    return torch.export.export(Scaled(), (torch.randn(2, 2),))


def names(program: torch.export.ExportedProgram) -> list[str]:
    """The operators that the graph calls."""
    return [str(node.target) for node in program.graph.nodes if node.op == "call_function"]


NAMED = """
import torch
from pteron.compat.executorch.exir.dialects._ops import ops

named = torch.ops.dim_order_ops._to_dim_order_copy
assert named.default is ops.edge.dim_order_ops._to_dim_order_copy.default.aten_overload
assert named(torch.ones(2, dtype=torch.int32), dtype=torch.float32).dtype == torch.float32
try:
    torch.ops.dim_order_ops.nothing
except AttributeError as error:
    assert "nothing" in str(error)
else:
    raise AssertionError("an operator that nobody defines")
"""


def test_operators_of_dimension_orders_have_executorch_s_name() -> None:
    # In a process of its own: where ExecuTorch itself is imported, the namespace is its own.
    subprocess.run([sys.executable, "-c", NAMED], check=True)


@pytest.mark.parametrize("keeps", [False, True])
def test_noops_stay_where_they_are_asked_to(keeps) -> None:
    edge = to_edge(captured(), compile_config=EdgeCompileConfig(keep_noops=keeps))
    kept = ("_clone_dim_order", "expand_copy", "view_copy")
    found = [part for part in kept if any(part in name for name in names(edge.exported_program()))]
    assert found == (list(kept) if keeps else [])
    # `to_executorch` removes them where no backend took them.
    plan = edge.to_executorch().executorch_program.execution_plan[0]
    assert [op.name for op in plan.operators] == ["aten::mm", "aten::add"]


class Listed(AddMulPartitionerDemo):
    """Keeps an operator that a captured program has, and lists one by its edge name too."""

    def ops_to_not_decompose(self, ep):
        return [torch.ops.aten.linear.default, ops.edge.aten.linear.default], None


def test_edge_operators_among_those_to_keep_mean_nothing() -> None:
    program = torch.export.export(torch.nn.Linear(2, 2), (torch.randn(1, 2),))
    edge = to_edge_transform_and_lower(program, partitioner=[Listed()])
    assert any("aten.linear" in name for name in names(edge.exported_program()))


def test_constants_are_marked_with_their_data_file() -> None:
    program = to_edge(captured()).exported_program()
    SpecPropPass()(program.graph_module)
    constants = [node for node in program.graph.nodes if is_param_node(program, node)]
    for node in constants:
        node.meta["spec"].const = True
    assert external_constants_pass(program.graph_module, lambda node: f"file_{node.name}").modified
    marks = {node.name: node.meta.get("constant_tag") for node in constants}
    assert marks == {"p_weight": "file_p_weight", "c_lifted_tensor_0": None}


def test_a_pass_chooses_the_data_file_of_a_constant() -> None:
    def mark(module: torch.fx.GraphModule) -> PassResult:
        for node in module.graph.nodes:
            if node.name == "p_weight":
                node.meta["constant_tag"] = "weights"
        return PassResult(module, True)

    made = to_edge(captured()).to_executorch(ExecutorchBackendConfig(passes=[mark]))
    assert list(made._tensor_data) == ["weights"]


def test_constants_of_delegates_are_marked_before_capture() -> None:
    module = captured().module()
    assert not delegate_external_constants_pass_unlifted(module).modified
    assert delegate_external_constants_pass_unlifted(module, lambda node: "weights").modified
    marks = {node.target: node.meta["custom"] for node in module.graph.nodes if node.op == "get_attr"}
    assert marks["weight"] == {"delegate_constant_tag": "weights"}


def test_a_module_takes_over_a_graph_and_what_it_reads() -> None:
    old, new = torch.fx.symbolic_trace(torch.nn.ReLU()), torch.fx.symbolic_trace(Scaled())
    _copy_module(old, new)
    x = torch.ones(2, 2)
    torch.testing.assert_close(old(x), new(x))
    assert old.weight is new.weight


def test_nodes_of_a_tag_and_what_may_not_carry_it() -> None:
    program = to_edge(captured()).exported_program()
    by_name = {node.name: node for node in program.graph.nodes}
    product = by_name["aten_mm_default"]
    product.meta["delegation_tag"] = "one"
    by_name["p_weight"].meta["delegation_tag"] = "one"
    found = _get_node_list_with_same_tag(program.graph_module, "one", program)
    assert found == [by_name["p_weight"], product]
    by_name["x"].meta["delegation_tag"] = "one"
    with pytest.raises(RuntimeError, match=r"non-tensor constants should not be tagged: x "):
        _get_node_list_with_same_tag(program.graph_module, "one", program)
    del by_name["x"].meta["delegation_tag"]
    product.meta["delegation_tag"] = "two"
    with pytest.raises(RuntimeError, match=r"\(p_weight\) is tagged with \(one\) but has user"):
        _get_node_list_with_same_tag(program.graph_module, "one", program)
    by_name["output"].meta["delegation_tag"] = "two"
    with pytest.raises(RuntimeError, match="output node output should not be tagged"):
        _get_node_list_with_same_tag(program.graph_module, "two", program)


class Branches(torch.nn.Module):
    """A choice between two graphs."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))


def test_bodies_at_positions_of_the_caller_s() -> None:
    module = torch.export.export(Branches(), (torch.ones(2),)).graph_module
    cond = torch.ops.higher_order.cond
    ((name, body, call),) = _get_control_flow_submodules(module, {cond: [2]})
    assert (name, call.target) == ("false_graph_0", cond)
    assert any("cos" in str(node.target) for node in body.graph.nodes)


def test_a_graph_moves_to_another_device_before_it_is_exported() -> None:
    class Masked(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x) + torch.arange(2, device="cpu")

    graph = torch.export.export(Masked(), (torch.randn(1, 2),)).module()
    moved = ToDevicePass("meta")(graph).graph_module
    again = torch.export.export(moved, (torch.randn(1, 2, device="meta"),))
    assert {node.meta["val"].device.type for node in again.graph.nodes if "val" in node.meta} == {"meta"}


def test_programs_for_partitioners_keep_what_these_want_whole() -> None:
    class Whole(AddMulPartitionerDemo):
        def ops_to_not_decompose(self, ep: torch.export.ExportedProgram) -> tuple[list[object], None]:
            return [torch.ops.aten.linear.default], None

    program = torch.export.export(torch.nn.Linear(2, 3), (torch.randn(4, 2),))
    programs, config = {"forward": program}, EdgeCompileConfig()
    whole = _gen_edge_manager_for_partitioners({"forward": [Whole()]}, programs, config, None)
    assert "aten.linear.default" in names(whole.exported_program())
    plain = _gen_edge_manager_for_partitioners({}, programs, config, {"version": 3}, generate_etrecord=True)
    assert "aten.addmm.default" in names(plain.exported_program())
    assert plain.config_methods == {"version"}
