"""What a program states about its inputs, outputs and sources."""

from __future__ import annotations

import collections
import json
from typing import Any, NamedTuple

import pytest
import torch
from torch.export import Dim
from torch.utils._pytree import tree_structure, treespec_loads

from pteron.errors import ExportError
from pteron.exir import ExecutorchBackendConfig, ExecutorchProgramManager, to_edge
from pteron.exir.emit.interface import output_names
from pteron.exir.emit.portable_tree import tree_text
from tests.exir.small_models import PORTABLE, edge_of, edge_program_of, emitted, random


class Pair(NamedTuple):
    left: int
    right: int


def _named(manager: ExecutorchProgramManager, key: str) -> dict[str, Any]:
    [found] = [entry for entry in manager.executorch_program.named_data if entry.key == key]
    value: dict[str, Any] = json.loads(bytes(found.data))
    assert value["version"] == 1
    return value


def _interface(manager: ExecutorchProgramManager, method: str = "forward") -> dict[str, Any]:
    return _named(manager, "pteron.interface")["methods"][method]


def test_names_ranges_and_relations() -> None:
    interface = _interface(edge_program_of("everything").to_executorch(PORTABLE))
    rows = {"symbol": "s0", "min": 2, "max": 16}
    assert interface["inputs"] == [{"name": "x", "shape": [rows, 4]}, {"name": "n"}, {"name": "flag"}]
    assert interface["outputs"] == [
        {"name": "left", "shape": [rows, 2]},
        {"name": "right", "shape": [{"expr": "2*s0", "min": 4, "max": 32}]},
        {"name": "size", "range": [7, 35]},
        {"name": "seen", "shape": [6]},
    ]


def test_equal_extents_have_one_symbol_and_others_their_own() -> None:
    rows, columns = Dim("rows", min=1, max=4), Dim("columns", min=3, max=9)
    manager = emitted(
        lambda x, y, z: (x + y, z * 2),
        random(2, 5),
        random(2, 5),
        random(5),
        dynamic_shapes=(({0: rows, 1: columns}, {0: rows, 1: columns}, {0: columns}),),
    )
    shapes = [entry["shape"] for entry in _interface(manager)["inputs"]]
    first = [{"symbol": "s0", "min": 1, "max": 4}, {"symbol": "s1", "min": 3, "max": 9}]
    assert shapes == [first, first, [first[1]]]


def test_a_symbolic_integer_input_states_its_range() -> None:
    class Repeat(torch.nn.Module):
        def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
            torch._check(n >= 2)
            torch._check(n <= 6)
            return x.expand(n, 3) * 2

    captured = torch.export.export(Repeat(), (random(1, 3), 4), dynamic_shapes=(None, Dim.DYNAMIC))
    manager = to_edge(captured).to_executorch(PORTABLE)
    n = {"symbol": "s0", "min": 2, "max": 6}
    assert _interface(manager)["inputs"][1] == {"name": "n", "range": [2, 6], "symbol": "s0"}
    assert _interface(manager)["outputs"] == [{"name": "output", "shape": [n, 3]}]


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (1, ["output"]),
        ((1, 2), ["output_0", "output_1"]),
        ({"a": 1, "b": (2, {"c": 3})}, ["a", "b.0", "b.1.c"]),
        ([{"a": 1}, 2], ["output_0.a", "output_1"]),
        ((None, 1), ["output_0", "output_1"]),
    ],
)
def test_outputs_are_named_after_their_place(value: Any, names: list[str]) -> None:
    tree = tree_structure(value)
    assert output_names(tree, tree.num_leaves) == names


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (torch.topk(torch.ones(3), 1), (0, 0)),
        (Pair(1, 2), (0, 0)),
        (collections.OrderedDict(z=1, a=2), {"z": 0, "a": 0}),
        ({"a": [1, (2, None)]}, {"a": [0, (0, 0)]}),
        (5, 0),
        ({}, {}),
    ],
)
def test_structures_are_stored_as_tuples_lists_and_dicts(value: Any, plain: Any) -> None:
    assert treespec_loads(tree_text(tree_structure(value))) == tree_structure(plain)


def test_a_dict_key_that_json_does_not_have_is_refused() -> None:
    with pytest.raises(ExportError, match=r"dict key \(1, 2\)"):
        tree_text(tree_structure({(1, 2): 3}))


def test_instructions_lead_to_operators_modules_and_lines() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList([torch.nn.Linear(3, 3)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layers[0](x).sin()

    plain = ExecutorchBackendConfig(optimize=False)
    manager = to_edge(torch.export.export(Model().eval(), (random(2, 3),))).to_executorch(plain)
    debug = _named(manager, "pteron.debug")
    method = debug["methods"]["forward"]
    plan = manager.executorch_program.execution_plan[0]
    assert len(method["instructions"]) == len(plan.chains[0].instructions)
    assert method["instructions"] == [[1], [1], [2]]
    line = Model.forward.__code__.co_firstlineno + 1
    linear, sin = method["handles"]["1"], method["handles"]["2"]
    assert (linear["operator"], linear["module"], linear["line"]) == ("aten.linear.default", "layers.0", line)
    assert (sin["operator"], sin["module"], sin["line"]) == ("aten.sin.default", "Model", line)
    assert debug["files"][linear["file"]].endswith("test_interface.py")
    assert manager.debug_handle_map == {"forward": {0: 1, 1: 1, 2: 2}}


def test_no_path_of_this_machine_gets_into_the_file() -> None:
    import os

    manager = edge_program_of("convolutional").to_executorch(PORTABLE)
    for entry in manager.executorch_program.named_data:
        assert os.path.dirname(__file__) not in bytes(entry.data).decode()
        assert os.path.dirname(torch.__file__) not in bytes(entry.data).decode()


def test_constant_methods_have_an_interface() -> None:
    edge = edge_of(torch.sin, random(2))
    manager = to_edge(
        torch.export.export(torch.nn.ReLU(), (random(2),)),
        constant_methods={"size": 3, "table": {"a": torch.ones(2, 2), "b": ["text", None, 0.5, True]}},
    ).to_executorch(PORTABLE)
    assert edge.config_methods == set()
    assert manager.config_methods == {"size", "table"}
    assert [plan.name for plan in manager.executorch_program.execution_plan] == ["forward", "size", "table"]
    assert _interface(manager, "size") == {"inputs": [], "outputs": [{"name": "output"}]}
    assert _interface(manager, "table")["outputs"][0] == {"name": "a", "shape": [2, 2]}
    table = manager.executorch_program.execution_plan[2]
    kinds = [type(table.values[index].val).__name__ for index in table.outputs]
    assert kinds == ["Tensor", "String", "Null", "Double", "Bool"]
    assert table.chains[0].instructions == []
