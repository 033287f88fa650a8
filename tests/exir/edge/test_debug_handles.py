"""Numbers that link edge nodes to the operators of the model."""

from __future__ import annotations

import torch

from pteron.exir import to_edge
from pteron.exir.edge.source_location import package_relative, source_location
from tests.exir.small_models import edge_of, random, targets


def _handles(program: torch.export.ExportedProgram) -> list[int | None]:
    return [node.meta.get("debug_handle") for node in program.graph.nodes if node.op == "call_function"]


def test_handles_count_from_one_and_one_source_operator_has_one() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Sigmoid(), torch.nn.Linear(2, 1))
    program = to_edge(torch.export.export(model, (random(2, 2, 3),))).exported_program()
    names = targets(program)
    handles = _handles(program)
    assert [h for n, h in zip(names, handles, strict=True) if n == "aten.sigmoid.default"] == [2]
    first, last = names.index("aten.sigmoid.default"), len(names)
    assert names[:first].count("aten.addmm.default") == 1
    assert names[:first].count("aten.view_copy.default") == 2
    assert set(handles[:first]) == {1}
    assert set(handles[first + 1 : last]) == {3}


def test_placeholders_and_outputs_have_none() -> None:
    program = edge_of(lambda x: x + 1, random(2)).exported_program()
    for node in program.graph.nodes:
        assert ("debug_handle" in node.meta) == (node.op == "call_function")


def test_a_picked_result_shares_the_handle_of_its_call() -> None:
    program = edge_of(lambda x: torch.topk(x, 1)[0].cos(), random(3)).exported_program()
    assert targets(program) == ["aten.topk.default", "getitem", "aten.cos.default"]
    assert _handles(program) == [1, 1, 2]


def test_a_node_knows_its_module_and_line() -> None:
    class Inner(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sin(x)  # the line below must be this one

    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = torch.nn.ModuleList([Inner(), Inner()])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                x = block(x)
            return x

    program = to_edge(torch.export.export(Outer(), (random(2),))).exported_program()
    locations = [source_location(node) for node in program.graph.nodes if node.op == "call_function"]
    assert [location.module for location in locations] == ["blocks.0", "blocks.1"]
    line = Inner.forward.__code__.co_firstlineno + 1
    for location in locations:
        assert location.line == line
        assert location.file is not None
        assert location.file.endswith("test_debug_handles.py")
        assert not location.file.startswith("/")


def test_a_file_of_a_package_is_named_below_that_package() -> None:
    assert package_relative(torch.nn.__file__) == "torch/nn/__init__.py"
    assert package_relative("/nowhere/model.py") == "model.py"
