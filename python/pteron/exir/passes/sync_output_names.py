"""Keep the names in a program's signature equal to the names of its output nodes."""

from __future__ import annotations

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument


def sync_output_names(program: ExportedProgram) -> None:
    """Write the current name of each output node into the matching output spec of `program`, in place."""
    output = program.graph_module.graph.output_node()
    returned = output.args[0]
    assert isinstance(returned, (tuple, list))
    for spec, value in zip(program.graph_signature.output_specs, returned, strict=True):
        if isinstance(value, torch.fx.Node) and not isinstance(spec.arg, ConstantArgument):
            spec.arg.name = value.name
