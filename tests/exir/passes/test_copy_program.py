"""A copy of a program is called by the same names."""

from __future__ import annotations

import torch
from torch import nn

from pteron.exir.passes.run_graph_passes import copy_program


def test_an_input_with_the_name_of_a_python_function_keeps_it() -> None:
    # The input of `nn.Sequential` is `input`, which a copy of a graph alone would make `input_1`.
    program = torch.export.export(nn.Sequential(nn.Linear(4, 2)).eval(), (torch.randn(1, 4),))
    copied = copy_program(program)
    names = [node.name for node in program.graph.nodes]
    assert "input" in names
    assert [node.name for node in copied.graph.nodes] == names
    specs = copied.graph_signature.input_specs
    assert [spec.arg.name for spec in specs] == names[: len(specs)]
